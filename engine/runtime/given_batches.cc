// Applies the checks of planning and of stages to tensors that the caller gives.
#include "engine/runtime/given_batches.h"

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/comm/specs.h"
#include "engine/layers/layer_types.h"
#include "engine/layers/losses.h"
#include "engine/layers/targets.h"
#include "engine/runtime/batch_source.h"

namespace strata {

GivenBatches::GivenBatches(const Job& job, const Plan& plan, EngineScript& script)

    : job_(job),
      plan_(plan),
      planned_loss_(PlannedLoss(job, plan)),
      tables_(job_, plan_, script, /*pipe_rank=*/0, nullptr) {
  if (planned_loss_.type.empty() || planned_loss_.scripted) return;
  loss_ = BuildLoss(planned_loss_, nullptr);
}

void GivenBatches::Check(const MicroBatches& batches, bool has_targets) {
  const auto feed = FeedOf(batches, /*replica=*/0, /*replicas=*/1);
  tables_.Forget();
  for (size_t m = 0; m < batches.list.size(); ++m) {
    try {
      const Boundaries& boundaries = tables_.BoundariesOf(feed->inputs()[m]);
      CheckTokens(batches.list[m].input);
      if (has_targets && loss_) CheckTarget(batches.list[m].target, boundaries.back());
    } catch (const ConfigError& error) {
      throw ConfigError(Str("micro-batch ", m, " from ", feed->origin().name, ": ", error.what()));
    }
  }
}

void GivenBatches::CheckTokens(const Tensors& input) const {
  const int64_t rows = TableRows(job_);
  if (rows > 0) RequireIndices(input.at(0), rows, "token", "rows");
}

void GivenBatches::CheckTarget(const Tensors& target, const TensorSpecs& output) const {
  CheckTargets(planned_loss_, job_.layers,
               WithType(output, job_.precision.compute, DType::kFloat32), SpecsOf(target));
  try {
    loss_->CheckTarget(target, output.at(0).shape);
  } catch (const ConfigError& error) {
    throw ConfigError(
        Str(Place(planned_loss_.where), "the loss ", planned_loss_.ToString(), ": ", error.what()));
  }
}

}  // namespace strata
