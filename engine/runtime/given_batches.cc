// The checks of planning and of stages, for tensors that nobody planned.
#include "engine/runtime/given_batches.h"

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/comm/groups/specs.h"
#include "engine/runtime/feed/batch_source.h"
#include "engine/spec/layers/layers.h"
#include "engine/spec/layers/targets.h"

namespace strata {

GivenBatches::GivenBatches(const Job& job, const Plan& plan, EngineScript& script)
    : job_(job), plan_(plan), tables_(job_, plan_, script, /*pipe_rank=*/0, nullptr) {
  if (!job.loss.type.empty() && !job.loss.scripted) loss_ = BuildLoss(job.loss, nullptr);
}

void GivenBatches::Check(const MicroBatches& batches, bool has_targets) {
  const auto feed = FeedOf(batches, /*replica=*/0, /*replicas=*/1);
  tables_.Forget();
  for (size_t m = 0; m < batches.list.size(); ++m) {
    try {
      const Boundaries& boundaries = tables_.BoundariesOf(feed->inputs()[m]);
      if (has_targets && loss_) CheckTarget(batches.list[m].target, boundaries.back());
    } catch (const ConfigError& error) {
      throw ConfigError(Str("micro-batch ", m, " from ", feed->origin().name, ": ", error.what()));
    }
  }
}

void GivenBatches::CheckTarget(const Tensors& target, const TensorSpecs& output) const {
  CheckTargets(job_.loss, job_.layers, WithType(output, job_.precision.compute, DType::kFloat32),
               SpecsOf(target));
  try {
    loss_->CheckTarget(target, output.at(0).shape);
  } catch (const ConfigError& error) {
    throw ConfigError(
        Str(Place(job_.loss.where), "the loss ", job_.loss.ToString(), ": ", error.what()));
  }
}

}  // namespace strata
