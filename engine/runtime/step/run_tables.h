// RunTables: rows and shapes that a run needs, by the number and the shapes of its micro-batches.
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

/// Makes an entry when it is first needed and keeps it. The last step of an epoch and evaluations
/// have other numbers and sizes of micro-batches than the plan.
class RunTables {
 public:
  /// `programs`: the plan's, which may be shared with other ranks. The other arguments must outlive
  /// the tables.
  RunTables(const Job& job, const Plan& plan, Script& script, int pipe_rank,
            std::shared_ptr<ProvedPrograms> programs)
      : job_(job),
        plan_(plan),
        script_(script),
        pipe_rank_(pipe_rank),
        programs_(std::move(programs)) {}

  /// The rank's row for `micro_batches` micro-batches in its replica; valid as long as the tables.
  /// A training row may have none: then the rank only takes part in reductions and in the step.
  /// Throws ConfigError with the checker's report if the program is not correct.
  const Row& Training(int micro_batches);
  const Row& Evaluation(int micro_batches);

  /// The boundaries for micro-batches whose tensors are `input`; valid until Forget(). They are
  /// taken from the plan for planned inputs and inferred once for others. Throws ConfigError as
  /// InferLayers() does.
  const Boundaries& BoundariesOf(const TensorSpecs& input);
  /// Call it between runs: drops all boundaries if there are too many, which happens when every
  /// micro-batch has another shape.
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
  std::map<std::string, Boundaries> boundaries_;  // by the text of the input's specs
};

}  // namespace strata
