// InferenceJob: the ranks of a job that is used and not trained; what `predict`, `eval` and
// `generate` share.
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
  /// They leave no files, nothing learns, and no layer moves.
  void Change(Job& job) const override;
  /// Throws ConfigError for a job that names no weights.
  static void ExpectWeights(const Job& job);
  /// Tells what the engine began with. Throws ConfigError where that is initial values: the folder
  /// of saves has none.
  static void Begun(const Engine& engine, RankReporter& reporter);
};

/// A message for people that is no result: it goes to standard error.
Value NoteMessage(const std::string& text);
/// Text that goes on on the same line.
Value PieceMessage(const std::string& text);

/// The flags that these commands have in common.
FieldTable InferenceFlags();

/// Makes the job, runs its ranks and shows what they send. Gives the exit code.
int RunInference(const Command& command, const std::vector<std::string>& arguments,
                 const std::function<std::unique_ptr<InferenceJob>(const Placement&)>& make);

}  // namespace strata::launcher
