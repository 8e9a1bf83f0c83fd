#include "engine/runtime/boundaries.h"

namespace strata {

const Boundaries& BoundaryTable::Of(int64_t rows) {
  const auto found = tables_.find(rows);
  if (found != tables_.end()) return found->second;
  const bool planned = rows == plan_.batch.micro_batch_size;
  return tables_.emplace(rows, planned ? Planned() : Inferred(rows)).first->second;
}

Boundaries BoundaryTable::Planned() const {
  Boundaries boundaries = {plan_.stages.front().input};
  for (const StagePlan& stage : plan_.stages) boundaries.push_back(stage.output);
  return boundaries;
}

Boundaries BoundaryTable::Inferred(int64_t rows) const {
  const std::vector<TensorSpecs> outputs = InferShapes(job_, rows, &script_);
  TensorSpecs input = plan_.stages.front().input;
  for (TensorSpec& spec : input) spec.shape.at(0) = rows;
  Boundaries boundaries = {std::move(input)};
  for (const StagePlan& stage : plan_.stages) boundaries.push_back(outputs.at(stage.end - 1));
  return boundaries;
}

}  // namespace strata
