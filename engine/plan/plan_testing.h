// What tests of plans, schedules and forecasts share.
#pragma once

#include <cstdint>

#include "engine/spec/job/job.h"
#include "engine/spec/layers/layers.h"

namespace strata {

/// Eight Linear layers of 64 features with a Tanh behind each, 16 layers in all; micro-batches of
/// 64 rows, SGD with momentum.
inline Job DeepJob(int pipe, int64_t micro_batches) {
  const auto make = [](const char* type, Value::List positional) {
    return MakeLayer(type, positional, {}, {}, "net.lua:3");
  };
  Job job;
  for (int i = 0; i < 8; ++i) {
    job.layers.push_back(make("Linear", {64, 64}));
    job.layers.push_back(make("Tanh", {}));
  }
  job.input = TensorSpec{{64}};
  job.loss = make("CrossEntropyLoss", {});
  job.batch = {.micro_batches = micro_batches, .micro_batch_size = 64};
  job.parallel.pipe = pipe;
  job.device = "cpu";
  job.optimizer.options.Set("momentum", 0.9);
  return job;
}

}  // namespace strata
