// StepFiles: files of a training's numbers that other programs read, beside --log: a table (--csv),
// what node_exporter hands to Prometheus (--prometheus), and TensorBoard's events (--tensorboard).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/fields/fields.h"
#include "engine/base/value.h"
#include "launcher/process/job_process.h"
#include "launcher/report/line_log.h"

namespace strata::launcher {

/// One such file. Records are those of records.h, of steps and of evaluations. All functions throw
/// WorldError with the file's name when it cannot be written.
class StepFile {
 public:
  virtual ~StepFile() = default;
  /// How a run of the training begins.
  struct Begin {
    bool goes_on = false;  ///< with another training's files
    GoesOn from = {};      ///< without a step for one that begins
  };
  /// Before the first record, and again when the job is started again. Records that come again are
  /// taken out.
  virtual void OnBegin(const Begin& begin) = 0;
  virtual void Add(const Value& record) = 0;
  /// Texts that the model wrote: SamplesRecord().
  virtual void AddTexts(const Value&) {}
  /// Of gradients: one of HistogramsRecords().
  virtual void AddHistograms(const Value&) {}
};

/// A line with the same columns for each record (RFC 4180). Behind a step's columns are those of an
/// evaluation, then "more": what else the record has, as JSON.
std::unique_ptr<StepFile> MakeCsvFile(const std::string& path);
/// The newest numbers in Prometheus's text format, replaced as a whole at most once a second.
std::unique_ptr<StepFile> MakePrometheusFile(const std::string& path);
/// A file "events.out.tfevents.TIME.HOST.PID.N" in the folder for each run, with scalars, texts
/// and histograms.
/// A run that goes on tells readers to forget the steps that come again.
std::unique_ptr<StepFile> MakeTensorboardFile(const std::string& folder);

/// --csv, --prometheus and --tensorboard.
FieldTable StepFileFields();

class StepFiles : public JobListener {
 public:
  /// Passes everything on to `next`, and then writes the files that `flags` name.
  StepFiles(JobListener& next, const Value& flags);

  void OnMessage(int rank, const Value& message) override;
  void OnOutput(int rank, bool is_error, std::string_view line) override {
    next_.OnOutput(rank, is_error, line);
  }
  void StopFiles() override;

 private:
  JobListener& next_;
  std::vector<std::unique_ptr<StepFile>> files_;
  bool goes_on_ = false;
};

}  // namespace strata::launcher
