// RunRecorder: collects the messages of a training into a RunRecord for `strata verify`.
#pragma once

#include "engine/base/value.h"
#include "launcher/commands/run_record.h"
#include "launcher/process/job_process.h"
#include "launcher/terminal/terminal.h"

namespace strata::launcher {

/// What the starter knows about a run before it begins.
struct PlannedRun {
  std::string name;  ///< RunRecord::name
  int64_t steps = 0;
  int ranks = 1;
  int replicas = 1;  ///< size of the data axis
  int sharing = 1;   ///< size of the model axis
  int processes = 1;
  int threads = 0;  ///< threads per rank as the job sets them; 0 = not set
  /// True when the schedule adds gradients in the same order as one stage: AccumulatesInOrder().
  bool in_order = true;
  std::string device = "cpu";  ///< Plan::device
  std::string unordered = {};  ///< Plan::unordered
  /// The relative difference that another order of summation may cause.
  std::string rounding = "1e-6";
};

/// The messages of a recorded training, in their order. The starter sends the first, rank 0 the
/// others.
Value PlannedMessage(const PlannedRun& run);
Value VerifiedStepMessage(const StepNumbers& result);
Value ParametersMessage(const std::vector<TensorDigest>& parameters);

class RunRecorder : public JobListener {
 public:
  explicit RunRecorder(Terminal& terminal) : terminal_(terminal) {}

  void OnMessage(int rank, const Value& message) override;
  void OnOutput(int rank, bool is_error, std::string_view line) override;

  const PlannedRun& planned() const { return planned_; }
  const RunRecord& record() const { return record_; }

 private:
  Terminal& terminal_;
  PlannedRun planned_;
  RunRecord record_;
};

}  // namespace strata::launcher
