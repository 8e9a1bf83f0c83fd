// TrainReport: the output of `strata train`: a header, lines for some steps, a progress bar on a
// terminal, evaluations, and the ranks' own output. It also writes the log of all steps. One object
// receives the messages of all runs of a restarted job (restarts.h).
#pragma once

#include <chrono>
#include <cstdint>
#include <ctime>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/value.h"
#include "engine/runtime/results.h"
#include "launcher/process/job_process.h"
#include "launcher/process/waiting.h"
#include "launcher/report/line_log.h"
#include "launcher/report/new_saves.h"
#include "launcher/terminal/terminal.h"

namespace strata::launcher {

// The types of the messages that listeners other than TrainReport also read, in their order:
inline constexpr const char* kJobMessage = "job";                ///< its goes_on
inline constexpr const char* kHeaderMessage = "header";          ///< its goes_on
inline constexpr const char* kStartMessage = "start";            ///< PlaceOf() it
inline constexpr const char* kStepMessage = "step";              ///< its record
inline constexpr const char* kEvalMessage = "eval";              ///< its record
inline constexpr const char* kSamplesMessage = "samples";        ///< its record, a note
inline constexpr const char* kHistogramsMessage = "histograms";  ///< its record
inline constexpr const char* kProgressMessage = "progress";      ///< its line

/// The version of the log's lines, their entry "version" (docs/reference/contract.md, "The log").
/// It is increased when an entry is removed or changes its meaning; new entries do not change it.
inline constexpr int kLogVersion = 1;

/// What the starter reports about the job.
struct JobFacts {
  std::string log = {};       ///< job.log
  bool goes_on = false;       ///< the training and its files continue another's
  std::string save_dir = {};  ///< job.save.dir
  std::string folder = {};  ///< for files about the job: the folder of saves, else that of the log
  bool takes_weights = false;     ///< it starts from given weights
  int64_t tokens_per_sample = 0;  ///< 0: samples are not rows of tokens
  double sample_flops = 0;        ///< floating-point operations to train on one sample
  /// Operations per second of all ranks at the fastest layer's pace; 0 = unknown.
  double peak_flops = 0;
  Value run = {};  ///< the job and its plan, for the log
};
/// Sent by each machine's starter. `goes_on`: the training and its files continue another's.
Value JobMessage(bool goes_on);
/// Sent by rank 0's starter.
Value HeaderMessage(const std::string& text, int ranks, const JobFacts& facts = {});
/// Sent by rank 0: the number of steps and how the training starts. It is followed by messages for
/// each step (StepRecord()), each save, each evaluation (when it begins, and its EvalRecord()), and
/// texts that the model writes (when it begins, and their SamplesRecord()).
Value StartMessage(int64_t steps, const StartReport& start);
/// The point at which the training of a StartMessage() continues.
GoesOn PlaceOf(const Value& start_message);
Value SaveMessage(const SaveReport& report);
Value StepMessage(const Value& record);
Value EvalStartMessage();
Value EvalMessage(const Value& record, bool is_last);
Value SamplesStartMessage();
/// `note`: the reason why the whole text is computed again for every token; "" = it is not.
Value SamplesMessage(const Value& record, const std::string& note);
/// One of a step's HistogramsRecords(); sent after the step's message.
Value HistogramsMessage(const Value& record);
/// Lines that are shown unchanged.
Value TextMessage(const std::string& text);
/// A line of a ProgressLine; sent by any rank, and by rank 0's starter.
Value ProgressMessage(const std::string& line);

/// "test loss 0.4712  accuracy 0.864" of an EvalRecord().
std::string FormatTest(const Value& record);

/// The number of steps between two lines, so that `steps` steps give about fifty lines: 1, 2, 5,
/// 10, 20, 50, ...
int64_t LinesEvery(int64_t steps);

class TrainReport : public JobListener {
 public:
  /// `print_every`: steps between two lines; 0 = LinesEvery() of all steps. `now`: the clock, in
  /// seconds, by which one rank's lines about progress are shown at a time.
  TrainReport(Terminal& terminal, int64_t print_every,
              std::function<double()> now = MonotonicSeconds)
      : terminal_(terminal), print_every_(print_every), now_(std::move(now)) {}

  /// Sets the number of ranks of the whole job, if another process shows the header.
  void set_ranks(int ranks) { ranks_ = ranks; }
  /// Sets the host of each rank, for a job over several hosts.
  void set_hosts(std::vector<std::string> hosts) { hosts_ = std::move(hosts); }

  /// For restarts: the most steps of the training that were done so far, what was saved since the
  /// first run's header, and whether the job started from given weights.
  int64_t furthest() const { return furthest_; }
  const NewSaves& saves() const { return saves_; }
  bool takes_weights() const { return takes_weights_; }
  /// The folder for files about the job; "" = there is none.
  const std::string& folder() const { return folder_; }

  /// Ends the log. `how`: "done", "stopped" or "failed". Throws WorldError as OnMessage() does.
  void OnEnd(const std::string& how);

  /// Throws WorldError if the log cannot be written.
  void OnMessage(int rank, const Value& message) override;
  void OnOutput(int rank, bool is_error, std::string_view line) override;
  void StopFiles() override { log_.reset(); }

 private:
  void OnHeader(const Value& message);
  void OnStart(const Value& message);
  void OnProgress(int rank, const std::string& line);
  void OnStep(const Value& record);
  void OnSave(const Value& message);
  void OnEval(const Value& record, bool is_last);
  void OnSamples(const Value& record, const std::string& note);
  void PrintStep(const Value& record);
  /// An item of a line, with its weight: if the terminal is narrow, the lightest items are left
  /// out.
  struct Item {
    int weight;
    std::string text;
  };
  std::vector<Item> ItemsOf(const Value& record) const;
  std::string SpeedText() const;
  void PrintStragglers(const Value& stragglers);
  void PrintMedian();
  void PrintConfusion(const Value& rows);
  void PrintMicroBatchLosses(const Value& losses);
  void ShowProgress(const Value& record);
  double SecondsLeft() const;
  std::string PrefixOf(int rank) const;
  std::string StepOfAll(int64_t done) const;
  void LogRun();
  void Log(const Value& record);

  Terminal& terminal_;
  int64_t print_every_;
  const std::function<double()> now_;
  int heard_rank_ = kStarter;  // the last one whose line about progress was shown, and when
  double heard_at_ = 0;
  const int64_t began_ = std::time(nullptr);
  int ranks_ = 1;
  std::vector<std::string> hosts_;
  int64_t steps_ = 0;
  int64_t first_ = 0;  // steps done before this training
  int64_t done_ = 0;
  double tokens_per_sample_ = 0;  // 0: speed is shown in samples
  double sample_flops_ = 0, peak_flops_ = 0;
  int64_t furthest_ = 0;
  bool has_noted_ = false;  // the note of SamplesMessage() was shown
  bool has_begun_ = false, takes_weights_ = false;
  NewSaves saves_;
  std::string folder_;
  std::optional<LineLog> log_;
  Value run_;                 // the log's record of this run, without what only rank 0 knows
  bool has_started_ = false;  // some run did; until then the log holds another training's lines
  bool goes_on_ = false;      // the log continues another training's

  double seconds_ = 0;  // of all steps
  // Sums since the last line:
  double line_seconds_ = 0;
  double line_data_seconds_ = 0;
  double line_idle_seconds_ = 0;      // mean over the ranks, as far as measured
  std::vector<double> step_seconds_;  // of each step so far
  int64_t line_samples_ = 0;
  int64_t line_peak_memory_ = 0;
  std::chrono::steady_clock::time_point last_progress_ = {};
};

}  // namespace strata::launcher
