// BoundaryTable: the shapes between stages, for micro-batches of any shape. Torch-free.
#pragma once

#include <map>
#include <string>

#include "engine/plan/plan.h"
#include "engine/runtime/stage/run_spec.h"
#include "engine/spec/job/job.h"
#include "engine/spec/layers/script.h"

namespace strata {

class BoundaryTable {
 public:
  /// Everything must outlive the table.
  BoundaryTable(const Job& job, const Plan& plan, Script& script)
      : job_(job), plan_(plan), script_(script) {}

  /// The boundaries for micro-batches whose tensors are `input`; they live until Forget(). The
  /// plan's are the plan's; others are inferred once. Throws ConfigError as InferLayers().
  const Boundaries& Of(const TensorSpecs& input);
  /// To be called between runs: drops what grew too large, when every micro-batch is different.
  void Forget();

 private:
  Boundaries Planned() const;

  const Job& job_;
  const Plan& plan_;
  Script& script_;
  std::map<std::string, Boundaries> tables_;  // by the text of the input
};

}  // namespace strata
