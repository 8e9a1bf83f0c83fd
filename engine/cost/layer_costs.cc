#include "engine/cost/layer_costs.h"

#include <algorithm>
#include <map>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/size_class.h"
#include "engine/cost/stage_runs.h"
#include "engine/cost/stage_tensors.h"
#include "engine/job/parameter_groups.h"
#include "engine/layers/connections.h"
#include "engine/layers/head_chunks.h"
#include "engine/layers/layer_tape.h"
#include "engine/layers/layer_types.h"
#include "engine/layers/own_type.h"
#include "engine/layers/split.h"

namespace strata {
namespace {

/// The number of elements of the parameter on one of `model` ranks.
int64_t OwnElements(const ParameterSpec& parameter, int model) {
  return parameter.share ? parameter.elements() / model : parameter.elements();
}

/// In the engine's flat buffers every parameter starts at a multiple of 16 elements.
int64_t Padded(int64_t elements) { return (elements + 15) / 16 * 16; }

/// Adds the bytes of a layer's parameters. `states`: the number of copies of the layer's buffers.
/// In half precision the layers compute on a copy of the parameters, except layers with a type of
/// their own. Norms do without the copy too; that is less than a percent and is ignored.
void AddParameters(const Job& job, const std::vector<LayerSpec>& layers, int layer, int model,
                   int states, LayerCost& cost) {
  const LayerSpec& spec = layers[static_cast<size_t>(layer)];
  const Precision& precision = job.precision;
  for (const ParameterSpec& parameter : ParametersOf(spec)) {
    if (parameter.packing != Packing::kNone) {
      const int64_t bytes = PackedBytes(parameter.packing, parameter.shape[0], parameter.shape[1]);
      cost.packed += parameter.elements();
      cost.packed_bytes += bytes;
      cost.weight_bytes += bytes;
      continue;
    }
    const int64_t elements = OwnElements(parameter, model);
    const bool is_float = parameter.dtype == DType::kFloat32 && !parameter.buffer && !OwnType(spec);
    const DType type = is_float ? precision.params : parameter.dtype;
    const int64_t bytes = Padded(elements) * DTypeSize(type);
    if (parameter.buffer) {
      cost.buffer_bytes += states * AllocatedBytes(bytes);
      continue;
    }
    cost.weight_bytes += bytes;
    if (is_float && precision.compute != precision.params) {
      const int64_t copy = Padded(elements) * DTypeSize(precision.compute);
      cost.weight_bytes += copy;
      cost.copy_bytes += copy;
    }
    if (spec.IsFrozen(parameter.name)) continue;
    cost.parameters += elements;
    cost.gradient_bytes += bytes;
    cost.extra_state_bytes += ExtraState(job.optimizer, layers, layer, parameter, type) /
                              (parameter.share ? model : 1) * DTypeSize(type);
  }
}

LayerCost CostOf(const LayerSpec& spec, const TensorSpecs& inputs, const TensorSpecs& outputs,
                 int model, Script* script, DType compute, const LayerHost& host) {
  LayerTape tape(inputs, spec.input_shard ? model : 1, model, script, compute, host);
  return tape.Finish(TraceLayer(tape, spec, tape.inputs(), outputs));
}

/// Counts the last layer and the loss in chunks if they run so.
void RunHeadInChunks(const Job& job, const LayerSpec& head, const TensorSpecs& logits, int model,
                     const LayerHost& host, ModelCosts& costs) {
  if (!MayRunInChunks(head, job.loss, model)) return;
  const auto rows = RowsInChunks(logits.at(0).shape, job.loss, host.is_cpu);
  if (!rows) return;
  CountInChunks(head, *rows, job.precision.compute, host.is_cpu, costs.layers.back());
  costs.loss.kept_bytes = costs.loss.backward_scratch = costs.loss.input_bytes = 0;
  costs.chunk_rows = RowsOfChunk(logits[0].shape.back(), host.is_cpu);
}

/// Removes what belongs to the backward from frozen layers before the first one that learns: their
/// forward makes no graph, so they keep nothing, and no gradient reaches them.
void DropBackwardsBeforeLearning(std::vector<LayerCost>& layers) {
  const auto learns = [](const LayerCost& cost) { return cost.parameters > 0; };
  const auto first = std::ranges::find_if(layers, learns);
  const auto is_frozen = [](const LayerCost& cost) { return cost.weight_bytes > 0; };
  if (first == layers.end() || std::none_of(layers.begin(), first, is_frozen)) return;
  for (LayerCost& cost : std::ranges::subrange(layers.begin(), first)) {
    cost.input_grad = cost.weight_grad = {};
    for (LayerPart& part : cost.parts) part.cost.input_grad = part.cost.weight_grad = {};
    cost.keeps_input = cost.keeps_output = cost.defers_input = false;
    cost.kept_bytes = cost.deferred_bytes = 0;
    cost.backward_scratch = cost.input_grad_scratch = 0;
  }
}

/// Sets the bytes per element of the optimizer state and of the memory that the optimizer step
/// touches.
void AddOptimizer(const OptimizerSpec& optimizer, DType params, ModelCosts& costs) {
  costs.moments = CountMoments(optimizer);
  const auto size = static_cast<double>(DTypeSize(params));
  costs.state_bytes = size * costs.moments;
  // Values and moments are read and written, gradients are read.
  costs.update_bytes = size * (3 + 2 * costs.moments);
}

void SetSeconds(LayerCost& cost, const DeviceRates& rates) {
  for (Work* work : {&cost.forward, &cost.input_grad, &cost.weight_grad}) {
    work->seconds = Seconds(*work, rates);
  }
}

}  // namespace

Work StageCost::work() const {
  Work work = forward;
  for (const Work* more : {&input_grad, &weight_grad, &recompute}) work += *more;
  return work;
}

std::vector<TensorSpecs> LayerInputs(const std::vector<LayerSpec>& layers, const TensorSpecs& input,
                                     const std::vector<TensorSpecs>& outputs) {
  std::vector<TensorSpecs> inputs = {input};
  inputs.insert(inputs.end(), outputs.begin(), outputs.end() - 1);
  for (const Connection& connection : FindConnections(layers)) {
    if (connection.of_documents) continue;
    const TensorSpecs& kept = outputs.at(static_cast<size_t>(connection.from));
    TensorSpecs& taken = inputs.at(static_cast<size_t>(connection.to));
    taken.insert(taken.end(), kept.begin(), kept.end());
  }
  return inputs;
}

ModelCosts CostsOf(const Job& job, const TensorSpecs& input,
                   const std::vector<TensorSpecs>& outputs, int model, Script* script,
                   const LayerHost& host) {
  const bool loss_takes_parts = model > 1 && TakesParts(job.loss);
  const std::vector<LayerSpec> layers =
      model > 1 ? LayOut(job.layers, loss_takes_parts) : job.layers;
  ModelCosts costs;
  AddOptimizer(job.optimizer, job.precision.params, costs);
  // Unless job.nonfinite is "warn", the engine keeps the state from before the current step.
  const int states = job.nonfinite == "warn" ? 1 : 2;
  std::vector<TensorSpecs> inputs;
  if (!input.empty()) inputs = LayerInputs(layers, input, outputs);
  for (size_t i = 0; i < layers.size(); ++i) {
    LayerCost& cost = costs.layers.emplace_back();
    if (!input.empty()) {
      cost = CostOf(layers[i], inputs[i], outputs[i], model, script, job.precision.compute, host);
    }
    AddParameters(job, layers, static_cast<int>(i), model, states, cost);
    cost.runs_once = HasMaxNorm(layers[i]);
  }
  for (const Connection& connection : FindConnections(layers)) {
    costs.connections.push_back({connection.from, connection.to});
  }
  DropBackwardsBeforeLearning(costs.layers);
  if (!input.empty() && !job.loss.type.empty()) {
    LayerTape tape(outputs.back(), layers.back().output_shard ? model : 1, model, script);
    TraceLoss(tape, job.loss);
    costs.loss = tape.Finish({});
    RunHeadInChunks(job, layers.back(), outputs.back(), model, host, costs);
  }
  return costs;
}

const char* ModelCosts::SourceText() const {
  constexpr const char* kTexts[] = {"stated rates", "stated rates", "the file of costs",
                                    "measured costs"};
  return kTexts[static_cast<int>(seconds_from)];
}

DeviceRates NominalDevice(const std::string& device) {
  if (device == "cuda") {
    return {.flops = 60e12, .memory = 1.5e12, .axis = 100e9, .launch = 5e-6};
  }
  return {.flops = 50e9, .memory = 10e9, .axis = 2e9, .launch = 5e-6};
}

double Seconds(const Work& work, const DeviceRates& rates) {
  const auto over = [](double amount, double rate) { return rate > 0 ? amount / rate : 0; };
  if (work.flops == 0 && work.bytes == 0 && work.axis_bytes == 0) return 0;
  return std::max(over(work.flops, rates.flops), over(work.bytes, rates.memory)) +
         over(work.axis_bytes, rates.axis) + rates.launch;
}

double AxisSeconds(const Work& work, const LinkRates& link, const DeviceRates& rates) {
  if (work.axis_bytes == 0) return 0;
  if (link.takes_time()) return link.Seconds(work.axis_bytes);
  return rates.axis > 0 ? work.axis_bytes / rates.axis : 0;
}

void SetSeconds(ModelCosts& costs, const DeviceRates& rates) {
  for (LayerCost& layer : costs.layers) SetSeconds(layer, rates);
  SetSeconds(costs.loss, rates);
  costs.update_seconds = Seconds({.bytes = costs.update_bytes}, {.memory = rates.memory});
  costs.norm_seconds = costs.clear_seconds = Seconds({.bytes = 4}, {.memory = rates.memory});
  costs.input_seconds = costs.target_seconds = 0;
  costs.seconds_from = SecondsFrom::kStated;
}

double FastestFlops(const ModelCosts& costs) {
  constexpr double kNoticeable = 0.05;
  // Maps the flops of a layer to the sum over all layers with equally many.
  std::map<double, double> of_size;
  double all = 0, fastest = 0;
  for (const LayerCost& layer : costs.layers) {
    of_size[layer.forward.flops] += layer.forward.flops;
    all += layer.forward.flops;
  }
  for (const LayerCost& layer : costs.layers) {
    if (of_size[layer.forward.flops] < kNoticeable * all) continue;
    for (const Work* pass : {&layer.forward, &layer.input_grad, &layer.weight_grad}) {
      if (pass->seconds > 0) fastest = std::max(fastest, pass->flops / pass->seconds);
    }
  }
  return fastest;
}

StageCost SumLayers(const ModelCosts& costs, int begin, int end, std::span<const int> segments) {
  STRATA_CHECK(0 <= begin && begin < end && end <= static_cast<int>(costs.layers.size()))
      << begin << " to " << end << " of " << costs.layers.size();
  const StageRuns stage(costs, begin, end);
  const std::vector<Run> runs = RunsOf(begin, end, segments);
  StageCost sum = stage.none();
  bool is_again = false;  // a later run is recomputed
  for (auto run = runs.rbegin(); run != runs.rend(); ++run) {
    sum = StageRuns::Add(stage.CostOf(*run), sum, run->is_recomputed && !is_again);
    is_again |= run->is_recomputed;
  }
  return sum;
}

std::vector<int64_t> MessageBytes(const ModelCosts& costs) {
  const auto layers = static_cast<int>(costs.layers.size());
  const StageTensors tensors(costs, 0, layers);
  std::vector<int64_t> bytes;
  for (int i = 0; i <= layers; ++i) bytes.push_back(tensors.MessageBytes(i));
  return bytes;
}

int FirstLearning(const ModelCosts& costs) {
  const auto learns = [](const LayerCost& cost) { return cost.parameters > 0; };
  return static_cast<int>(std::ranges::find_if(costs.layers, learns) - costs.layers.begin());
}

}  // namespace strata
