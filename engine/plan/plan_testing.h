// Helpers that tests of plans, schedules and forecasts share.
#pragma once

#include <cstdint>
#include <string>

#include "engine/job/job.h"
#include "engine/layers/layer_types.h"

namespace strata {

/// The layer that nn.TYPE{...} gives in a script.
inline LayerSpec Make(const std::string& type, Value::List positional = {}, Value::Map named = {}) {
  return MakeLayer(type, positional, named, {}, "net.lua:3");
}

/// A job of eight Linear layers of 64 features, each followed by a Tanh (16 layers in all), with
/// micro-batches of 64 rows and SGD with momentum.
inline Job DeepJob(int pipe, int64_t micro_batches) {
  Job job;
  for (int i = 0; i < 8; ++i) {
    job.layers.push_back(Make("Linear", {64, 64}));
    job.layers.push_back(Make("Tanh"));
  }
  job.input = TensorSpec{{64}};
  job.loss = Make("CrossEntropyLoss");
  job.batch = {.micro_batches = micro_batches, .micro_batch_size = 64};
  job.parallel.pipe = pipe;
  job.device = "cpu";
  job.optimizer.options.Set("momentum", 0.9);
  return job;
}

}  // namespace strata
