// RunTables: what a run needs beside its data, by the number and the shapes of its micro-batches.
// Torch-free.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "engine/forecast/proved_programs.h"
#include "engine/job/job.h"
#include "engine/layers/script.h"
#include "engine/plan/plan.h"
#include "engine/runtime/stage/run_spec.h"
#include "engine/runtime/step/row.h"

namespace strata {

/// Makes an entry when it is first needed, and keeps it: the last step of an epoch and evaluations
/// have micro-batches of their own number and size.
class RunTables {
 public:
  /// `programs`: the plan's, which other ranks may share. The rest must outlive the tables.
  RunTables(const Job& job, const Plan& plan, Script& script, int pipe_rank,
            std::shared_ptr<ProvedPrograms> programs)
      : job_(job),
        plan_(plan),
        script_(script),
        pipe_rank_(pipe_rank),
        programs_(std::move(programs)) {}

  /// The rank's row for `micro_batches` micro-batches of its replica; lives as long as the tables.
  /// Training may have none: then the rank only takes part in reductions and in the step. Throws
  /// ConfigError with the checker's report when the program is not right.
  const Row& Training(int micro_batches);
  const Row& Evaluation(int micro_batches);

  /// The boundaries for micro-batches whose tensors are `input`; they live until Forget(). The
  /// plan's are the plan's; others are inferred once. Throws ConfigError as InferLayers().
  const Boundaries& BoundariesOf(const TensorSpecs& input);
  /// To be called between runs: drops boundaries that grew too many, when every micro-batch has
  /// another shape.
  void Forget();

 private:
  bool IsPlanned(int micro_batches) const { return micro_batches == plan_.batch.micro_batches; }
  Row UnplannedTraining(int micro_batches);
  Row Compile(const schedule::Program& program) const;
  Boundaries Infer(const TensorSpecs& input) const;

  const Job& job_;
  const Plan& plan_;
  Script& script_;
  const int pipe_rank_;
  const std::shared_ptr<ProvedPrograms> programs_;
  std::map<int, Row> training_, evaluation_;
  std::map<std::string, Boundaries> boundaries_;  // by the text of the input
};

}  // namespace strata
