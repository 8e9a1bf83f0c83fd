#include "engine/forecast/decisions.h"

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/layers/parts.h"

namespace strata {

Decisions DecisionsOf(const Plan& plan) {
  return {.pipe = plan.pipe(),
          .data = plan.topology.Size(kDataAxis),
          .model = plan.topology.Size(kModelAxis),
          .schedule = plan.schedule,
          .stages_per_rank = plan.stages_per_rank(),
          .micro_batches = plan.batch.micro_batches,
          .micro_batch_size = plan.batch.micro_batch_size,
          .bounds = plan.bounds};
}

Job Decided(Job job, const Plan& plan) {
  if (job.partition.method == "auto") job.partition = {"cuts", plan.bounds, {}};
  if (job.schedule.name == "auto") job.schedule.name = plan.schedule;
  job.stages_per_rank = plan.stages_per_rank();
  return job;
}

Job WithWholeLayers(Job job, const char* who) {
  if (!HasParts(job.layers)) return job;
  const CutNames names(job.layers);
  for (int& bound : job.partition.bounds) {
    if (names.IsInside(bound)) {
      throw ConfigError(Str("partition: ", who, " knows whole layers, and the cut ",
                            names.At(bound), " is inside of one"));
    }
    bound = LayerNumber(job.layers, bound);
  }
  job.layers = InWhole(job.layers);
  return job;
}

Value KeysOf(const Decisions& decisions) {
  const auto& [pipe, data, model, schedule, stages_per_rank, micro_batches, size, bounds] =
      decisions;
  Value keys;
  keys.Set("parallel", Value::MakeMap({{"pipe", pipe}, {"data", data}, {"model", model}}));
  if (!schedule.empty()) keys.Set("schedule", schedule);
  keys.Set("stages_per_rank", stages_per_rank);
  keys.Set("partition", Value::IntList({bounds.begin(), bounds.end()}));
  return keys.Set("batch", Value::MakeMap({{"size", micro_batches * size},
                                           {"micro_batches", micro_batches},
                                           {"micro_batch_size", size}}));
}

std::string GridText(const Decisions& decisions) {
  return Str("pipe ", decisions.pipe, " x data ", decisions.data, " x model ", decisions.model);
}

}  // namespace strata
