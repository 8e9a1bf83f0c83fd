#include "engine/spec/job.h"

#include "engine/base/error.h"
#include "engine/base/text.h"

namespace strata {
namespace {

template <class Item>
Value ListOf(const std::vector<Item>& items, Value (*to_value)(const Item&)) {
  Value::List list;
  for (const Item& item : items) list.push_back(to_value(item));
  return list;
}

Value ToValue(const LayerSpec& layer) { return layer.ToValue(); }

Value ToValue(const TensorSpec& spec) {
  Value value;
  value.Set("shape", Value::IntList(spec.shape)).Set("dtype", DTypeName(spec.dtype));
  return value;
}

Value ToValue(const ParameterGroup& group) {
  Value value;
  value.Set("layers", group.layers.items).Set("parameters", group.parameters);
  if (!group.dims.empty()) value.Set("dims", group.dims);
  return value.Set("options", group.options);
}

Value ToValue(const OptimizerSpec& spec) {
  Value value;
  value.Set("type", spec.type).Set("options", spec.options);
  return value.Set("groups", ListOf<ParameterGroup>(spec.groups, ToValue));
}

Value ToValue(const LrScheduleSpec& spec) {
  Value value;
  value.Set("type", spec.type).Set("options", spec.options);
  return value.Set("function", spec.function);
}

Value ToValue(const DataSpec& spec) {
  Value value;
  value.Set("source", spec.kind).Set("options", spec.options);
  return value.Set("function", spec.function);
}

Value ToValue(const PartitionSpec& spec) {
  Value value;
  value.Set("method", spec.method);
  value.Set("bounds", Value::IntList({spec.bounds.begin(), spec.bounds.end()}));
  return value.Set("function", spec.function);
}

Value ToValue(const Parallel& parallel) {
  Value value;
  value.Set("pipe", parallel.pipe).Set("data", parallel.data);
  return value.Set("model", parallel.model);
}

Value ToValue(const ScheduleSpec& spec) {
  Value value;
  value.Set("name", spec.name).Set("source", spec.source);
  return value.Set("function", spec.function);
}

Value ToValue(const Batch& batch) {
  Value value;
  value.Set("size", batch.size).Set("micro_batches", batch.micro_batches);
  return value.Set("micro_batch_size", batch.micro_batch_size);
}

Value ToValue(const SaveSpec& save) {
  Value value;
  return value.Set("dir", save.dir).Set("every", save.every).Set("keep", save.keep);
}

Value ToValue(const RecomputeSpec& spec) {
  Value value;
  value.Set("method", static_cast<int>(spec.method)).Set("every", spec.every);
  return value.Set("layers", spec.layers.items).Set("function", spec.function);
}

Value ToValue(const EvalSpec& eval) {
  Value value;
  value.Set("every", eval.every).Set("batch", eval.batch);
  return value.Set("metric", eval.metric);
}

}  // namespace

Batch ResolveBatch(const Batch& batch) {
  const int64_t m = batch.micro_batches, each = batch.micro_batch_size;
  const int given = (batch.size > 0) + (m > 0) + (each > 0);
  if (given < 2) {
    throw ConfigError("batch needs two of size, micro_batches and micro_batch_size");
  }
  if (batch.size == 0) return {m * each, m, each};
  const int64_t divisor = m > 0 ? m : each;
  if (m > 0 && each > 0 && !(batch.size / m == each && batch.size % m == 0)) {
    throw ConfigError(Str("batch: size ", batch.size, " is not micro_batches ", m,
                          " * micro_batch_size ", each, "; two of the three suffice"));
  }
  if (batch.size % divisor != 0) {
    throw ConfigError(Str("batch: size ", batch.size, " is not divisible by ",
                          m > 0 ? "micro_batches " : "micro_batch_size ", divisor));
  }
  const int64_t other = batch.size / divisor;
  return m > 0 ? Batch{batch.size, m, other} : Batch{batch.size, other, each};
}

Value Job::ToValue() const {
  Value value;
  value.Set("name", name).Set("layers", ListOf<LayerSpec>(layers, strata::ToValue));
  value.Set("input", input ? strata::ToValue(*input) : Value());
  value.Set("loss", loss.ToValue()).Set("partition", strata::ToValue(partition));
  value.Set("parallel", strata::ToValue(parallel)).Set("schedule", strata::ToValue(schedule));
  value.Set("stages_per_rank", stages_per_rank).Set("batch", strata::ToValue(batch));
  value.Set("optimizer", strata::ToValue(optimizer));
  value.Set("lr_schedule", strata::ToValue(lr_schedule))
      .Set("clip", clip)
      .Set("zero", zero)
      .Set("join", join);
  value.Set("recompute", strata::ToValue(recompute));
  value.Set("freeze", freeze.items).Set("train_data", strata::ToValue(train_data));
  value.Set("test_data", strata::ToValue(test_data)).Set("eval", strata::ToValue(eval));
  value.Set("steps", steps).Set("epochs", epochs).Set("seed", seed).Set("seed_fn", seed_fn);
  value.Set("save", strata::ToValue(save)).Set("resume", resume).Set("weights", weights);
  value.Set("device", device).Set("transport", transport).Set("threads", threads);
  value.Set("timeout", timeout).Set("hang_timeout", hang_timeout).Set("log", log);
  value.Set("memory", memory).Set("costs", costs);
  value.Set("tie_check", tie_check).Set("comm_log", comm_log).Set("trace", trace);
  return value.Set("nonfinite", nonfinite).Set("losses", losses);
}

}  // namespace strata
