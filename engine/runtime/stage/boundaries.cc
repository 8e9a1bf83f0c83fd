#include "engine/runtime/stage/boundaries.h"

#include "engine/spec/layers/connections.h"
#include "engine/spec/layers/layers.h"

namespace strata {
namespace {

/// Shapes kept at a time. A table takes some hundred bytes a stage.
constexpr size_t kMostTables = 1000;

}  // namespace

const Boundaries& BoundaryTable::Of(const TensorSpecs& input) {
  const std::string key = ToString(input);
  const auto found = tables_.find(key);
  if (found != tables_.end()) return found->second;
  const bool planned = input == plan_.stages.front().input;
  return tables_
      .emplace(key, planned ? Planned()
                            : BoundarySpecs(job_.layers, plan_.bounds, input,
                                            InferLayers(job_.layers, input, &script_)))
      .first->second;
}

void BoundaryTable::Forget() {
  if (tables_.size() > kMostTables) tables_.clear();
}

Boundaries BoundaryTable::Planned() const {
  Boundaries boundaries = {plan_.stages.front().input};
  for (const StagePlan& stage : plan_.stages) boundaries.push_back(stage.output);
  return boundaries;
}

}  // namespace strata
