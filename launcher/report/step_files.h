// StepFiles: files of a training's numbers for other programs, besides --log: a table (--csv),
// numbers for Prometheus through node_exporter (--prometheus), and TensorBoard's events
// (--tensorboard).
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

/// One such file. It receives the records of steps and evaluations (records.h). All functions throw
/// WorldError with the file's name if it cannot be written.
class StepFile {
 public:
  virtual ~StepFile() = default;
  /// The start of a run of the training.
  struct Begin {
    bool goes_on = false;  ///< it continues another training's files
    GoesOn from = {};      ///< for a new training, step 0
  };
  /// Called before the first record, and again when the job is restarted. Removes records that will
  /// be written again.
  virtual void OnBegin(const Begin& begin) = 0;
  virtual void Add(const Value& record) = 0;
  /// Adds texts that the model wrote: a SamplesRecord().
  virtual void AddTexts(const Value&) {}
  /// Adds histograms of gradients: one of HistogramsRecords().
  virtual void AddHistograms(const Value&) {}
};

/// A CSV file (RFC 4180) with the same columns in each line: those of a step, those of an
/// evaluation, and "more", which holds all other entries of the record as JSON.
std::unique_ptr<StepFile> MakeCsvFile(const std::string& path);
/// The newest numbers in Prometheus's text format. The file is replaced as a whole, at most once a
/// second.
std::unique_ptr<StepFile> MakePrometheusFile(const std::string& path);
/// A file "events.out.tfevents.TIME.HOST.PID.N" in the folder for each run, with scalars, texts and
/// histograms. A run that continues tells readers to discard the steps that will be repeated.
std::unique_ptr<StepFile> MakeTensorboardFile(const std::string& folder);

/// The flags --csv, --prometheus and --tensorboard.
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
