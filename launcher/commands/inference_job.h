// InferenceJob: a RankJob that runs a trained model without training it. The commands `predict`,
// `eval` and `generate` share it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/fields/fields.h"
#include "launcher/commands/rank_job.h"

namespace strata::launcher {

class InferenceJob : public RankJob {
 public:
  using RankJob::RankJob;

 protected:
  bool trains() const override { return false; }
  /// Removes what belongs to training from the job: it writes no files, nothing is learnt, and no
  /// layer moves.
  void Change(Job& job) const override;
  /// Throws ConfigError for a job that names no weights.
  static void ExpectWeights(const Job& job);
  /// Reports what the engine started from. Throws ConfigError if it started from initial values,
  /// because the folder of saves is empty.
  static void Begun(const StartReport& start, RankReporter& reporter);
};

/// A message for the user that is not a result; it goes to standard error.
Value NoteMessage(const std::string& text);
/// Text that continues the current line.
Value PieceMessage(const std::string& text);

/// The flags that these commands share.
FieldTable InferenceFlags();

/// Makes the job, runs its ranks and shows what they send. Returns the exit code.
int RunInference(const Command& command, const std::vector<std::string>& arguments,
                 const std::function<std::unique_ptr<InferenceJob>(const Placement&)>& make);

}  // namespace strata::launcher
