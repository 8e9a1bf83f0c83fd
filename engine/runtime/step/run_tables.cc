// Programs are proved and shapes are inferred once and then looked up.
#include "engine/runtime/step/run_tables.h"

#include <algorithm>
#include <utility>

#include "engine/layers/connections.h"
#include "engine/layers/layer_types.h"

namespace strata {
namespace {

/// The most boundaries that are kept. Each takes some hundred bytes per stage.
constexpr size_t kMostBoundaries = 1000;

}  // namespace

const Row& RunTables::Training(int micro_batches) {
  const auto found = training_.find(micro_batches);
  if (found != training_.end()) return found->second;
  Row row = IsPlanned(micro_batches) ? Compile(programs_->Training(job_, plan_, &script_))
                                     : UnplannedTraining(micro_batches);
  return training_.emplace(micro_batches, std::move(row)).first->second;
}

Row RunTables::UnplannedTraining(int micro_batches) {
  Row row = Compile(ProvedTraining(job_, plan_, std::max(micro_batches, 1), &script_));
  if (micro_batches == 0) row = WithoutMicroBatches(std::move(row));
  if (plan_.topology.Size(kDataAxis) <= 1) return row;
  const Row& planned = Training(static_cast<int>(plan_.batch.micro_batches));
  return WithReductionsAs(planned, std::move(row));
}

const Row& RunTables::Evaluation(int micro_batches) {
  const auto found = evaluation_.find(micro_batches);
  if (found != evaluation_.end()) return found->second;
  Row row = IsPlanned(micro_batches) ? Compile(programs_->Evaluation(plan_))
                                     : Compile(ProvedEvaluation(plan_, micro_batches));
  return evaluation_.emplace(micro_batches, std::move(row)).first->second;
}

Row RunTables::Compile(const schedule::Program& program) const {
  return CompileRow(program, pipe_rank_);
}

const Boundaries& RunTables::BoundariesOf(const TensorSpecs& input) {
  const std::string key = ToString(input);
  const auto found = boundaries_.find(key);
  if (found != boundaries_.end()) return found->second;
  return boundaries_.emplace(key, Infer(input)).first->second;
}

Boundaries RunTables::Infer(const TensorSpecs& input) const {
  if (input != plan_.stages.front().input) {
    return BoundarySpecs(job_.layers, plan_.bounds, input,
                         InferLayers(job_.layers, input, &script_, job_.precision.compute));
  }
  Boundaries planned = {input};
  for (const StagePlan& stage : plan_.stages) planned.push_back(stage.output);
  return planned;
}

void RunTables::Forget() {
  if (boundaries_.size() > kMostBoundaries) boundaries_.clear();
}

}  // namespace strata
