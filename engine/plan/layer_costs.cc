#include "engine/plan/layer_costs.h"

#include <algorithm>
#include <utility>

#include "engine/base/check.h"
#include "engine/plan/layer_tape.h"
#include "engine/plan/size_class.h"
#include "engine/spec/connections.h"
#include "engine/spec/layers.h"
#include "engine/spec/split.h"

namespace strata {
namespace {

/// Elements of the parameter that one of `model` ranks has.
int64_t OwnElements(const ParameterSpec& parameter, int model) {
  return parameter.share ? parameter.elements() / model : parameter.elements();
}

/// In the flat buffers of the engine every parameter starts at a multiple of 16 elements.
int64_t Padded(int64_t elements) { return (elements + 15) / 16 * 16; }

void AddParameters(const LayerSpec& spec, int model, LayerCost& cost) {
  for (const ParameterSpec& parameter : ParametersOf(spec)) {
    const int64_t elements = OwnElements(parameter, model);
    const int64_t bytes = Padded(elements) * DTypeSize(parameter.dtype);
    if (parameter.buffer) {
      cost.buffer_bytes += AllocatedBytes(bytes);
      continue;
    }
    cost.weight_bytes += bytes;
    if (spec.frozen) continue;
    cost.parameters += elements;
    cost.gradient_bytes += bytes;
  }
}

LayerCost CostOf(const LayerSpec& spec, const TensorSpecs& inputs, const TensorSpecs& outputs,
                 int model, Script* script) {
  LayerTape tape(inputs, spec.takes ? model : 1, model);
  if (spec.has_scripted_forward()) {
    return tape.Finish(TraceScripted(tape, spec, tape.inputs(), outputs));
  }
  return tape.Finish(TraceLayer(tape, spec, tape.inputs(), script));
}

LayerCost CostOfLoss(const LayerSpec& loss, const TensorSpecs& output, int parts) {
  LayerTape tape(output, parts, parts);
  TraceLoss(tape, loss, tape.inputs().front());
  return tape.Finish({});
}

/// What the optimizer keeps, and what its step reads and writes, for each element.
void AddOptimizer(const OptimizerSpec& optimizer, ModelCosts& costs) {
  double moments = 2;
  if (optimizer.type == "sgd") {
    moments = optimizer.options["momentum"].as_double() == 0 ? 0 : 1;
  } else if (optimizer.options.Has("amsgrad") && optimizer.options["amsgrad"].as_bool()) {
    moments = 3;
  }
  costs.state_bytes = 4 * moments;
  costs.update_bytes =
      4 * (3 + 2 * moments);  // values and moments read and written, gradients read
}

bool IsSegment(std::span<const int> segments, int layer) {
  return !segments.empty() && segments[static_cast<size_t>(layer)] >= 0;
}

/// Layers that keep their activations, or are computed again, together.
struct Run {
  int begin = 0;
  int end = 0;
  bool is_recomputed = false;
};

std::vector<Run> RunsOf(int begin, int end, std::span<const int> segments) {
  std::vector<Run> runs;
  for (int i = begin; i < end; ++i) {
    const bool is_recomputed = IsSegment(segments, i);
    const bool goes_on = i > begin && (is_recomputed ? segments[static_cast<size_t>(i)] ==
                                                           segments[static_cast<size_t>(i) - 1]
                                                     : !IsSegment(segments, i - 1));
    if (goes_on) {
      runs.back().end = i + 1;
    } else {
      runs.push_back({i, i + 1, is_recomputed});
    }
  }
  return runs;
}

/// Adds up a stage, layer by layer.
class Summer {
 public:
  Summer(const ModelCosts& costs, int begin, int end)
      : costs_(costs), begin_(begin), end_(end), first_with_gradient_(begin) {
    if (begin > 0) return;
    while (first_with_gradient_ < end && layer(first_with_gradient_).parameters == 0) {
      ++first_with_gradient_;
    }
  }

  StageCost Sum(std::span<const int> segments) {
    sum_.input_bytes = layer(begin_).input_bytes;
    sum_.output_bytes = layer(end_ - 1).output_bytes;
    AddWork();
    const std::vector<Run> runs = RunsOf(begin_, end_, segments);
    AddForward(runs);
    AddRecomputation(runs);
    sum_.backward_peak = BackwardPeak(runs, /*defers=*/false);
    sum_.input_grad_peak = BackwardPeak(runs, /*defers=*/true);
    sum_.deferred_bytes = sum_.input_bytes;
    for (int i = std::max(begin_, first_with_gradient_); i < end_; ++i) {
      sum_.deferred_bytes += Deferred(i) - (i == begin_) * DeferredInput(i);
    }
    return sum_;
  }

 private:
  const LayerCost& layer(int i) const { return costs_.layers[static_cast<size_t>(i)]; }
  bool has_loss() const { return end_ == static_cast<int>(costs_.layers.size()); }
  bool has_graph(int i) const { return i >= first_with_gradient_; }
  /// Whether a gradient of layer i's input is computed.
  bool gives_gradient(int i) const { return begin_ > 0 || i > first_with_gradient_; }

  void AddWork() {
    for (int i = begin_; i < end_; ++i) {
      const LayerCost& cost = layer(i);
      sum_.forward += cost.forward;
      if (gives_gradient(i)) sum_.input_grad += cost.input_grad;
      sum_.weight_grad += cost.weight_grad;
      sum_.parameters += cost.parameters;
      sum_.weight_bytes += cost.weight_bytes;
      sum_.gradient_bytes += cost.gradient_bytes;
      sum_.buffer_bytes += cost.buffer_bytes;
    }
    if (!has_loss()) return;
    sum_.forward += costs_.loss.forward;
    sum_.input_grad += costs_.loss.input_grad;
  }

  /// What is kept of a run with its graph, the run's input left out; `counted` says whether the
  /// tensor between two layers was counted already.
  struct Chain {
    int64_t bytes = 0;
    bool counted = true;
  };
  void Keep(int i, Chain& chain) const {
    const LayerCost& cost = layer(i);
    if (!has_graph(i)) {
      chain.counted &= cost.passes_input;
      return;
    }
    if (cost.keeps_input && !chain.counted) {
      chain.bytes += cost.input_bytes;
      chain.counted = true;
    }
    chain.bytes += cost.kept_bytes;
    if (cost.passes_input) return;
    chain.counted = cost.keeps_output;
    if (cost.keeps_output) chain.bytes += cost.output_bytes;
  }

  int64_t KeptByLoss() const { return has_loss() ? costs_.loss.kept_bytes : 0; }

  void AddForward(const std::vector<Run>& runs) {
    int64_t kept = sum_.input_bytes;
    for (const Run& run : runs) {
      Chain chain;
      if (run.begin > begin_) kept += layer(run.begin).input_bytes;
      for (int i = run.begin; i < run.end; ++i) {
        if (!run.is_recomputed) Keep(i, chain);
        const LayerCost& cost = layer(i);
        const int64_t passing = (chain.counted ? 0 : cost.input_bytes) + cost.output_bytes;
        sum_.forward_peak =
            std::max(sum_.forward_peak, kept + chain.bytes + passing + cost.forward_scratch);
      }
      kept += chain.bytes;
      if (run.end == end_ && has_loss() && !run.is_recomputed) kept += KeptByLoss();
    }
    sum_.kept_bytes = kept;
    sum_.keeps_output = !runs.back().is_recomputed && layer(end_ - 1).keeps_output;
    sum_.forward_peak = std::max(sum_.forward_peak, kept + sum_.output_bytes);
  }

  void AddRecomputation(const std::vector<Run>& runs) {
    for (const Run& run : runs) {
      if (!run.is_recomputed) continue;
      for (int i = run.begin; i < run.end; ++i) sum_.recompute += layer(i).forward;
      sum_.recomputed_bytes = KeptOf(run).back();  // in the end, of the last one
    }
  }

  /// What is kept of the run with its graph up to each layer; last, with the loss.
  std::vector<int64_t> KeptOf(const Run& run) const {
    std::vector<int64_t> kept;
    Chain chain;
    for (int i = run.begin; i < run.end; ++i) {
      kept.push_back(chain.bytes);
      Keep(i, chain);
    }
    kept.push_back(chain.bytes);
    kept.push_back(chain.bytes + (run.end == end_ ? KeptByLoss() : 0));
    return kept;
  }

  /// From the last layer to the first: what is kept shrinks, gradients come and go, and what the
  /// weight gradients need stays, if they come later.
  int64_t BackwardPeak(const std::vector<Run>& runs, bool defers) const {
    int64_t kept = sum_.kept_bytes, deferred = 0, peak = 0;
    for (auto run = runs.rbegin(); run != runs.rend(); ++run) {
      const std::vector<int64_t> of_run = KeptOf(*run);
      const int64_t before = run->is_recomputed ? kept : kept - of_run.back();
      if (run->end == end_ && has_loss()) {
        peak = std::max(peak, before + of_run.back() + costs_.loss.backward_scratch +
                                  layer(end_ - 1).output_bytes);
      }
      for (int i = run->end - 1; i >= std::max(run->begin, first_with_gradient_); --i) {
        const LayerCost& cost = layer(i);
        const int64_t gradients = cost.output_bytes + (gives_gradient(i) ? cost.input_bytes : 0);
        const int64_t still = of_run[static_cast<size_t>(i - run->begin) + 1];
        peak = std::max(peak, before + still + deferred + gradients + cost.backward_scratch);
        if (defers) deferred += Deferred(i);
      }
      kept = before - (run->begin > begin_ ? layer(run->begin).input_bytes : 0);
    }
    return peak;
  }

  int64_t DeferredInput(int i) const { return layer(i).defers_input ? layer(i).input_bytes : 0; }
  int64_t Deferred(int i) const { return layer(i).deferred_bytes + DeferredInput(i); }

  const ModelCosts& costs_;
  const int begin_, end_;
  int first_with_gradient_;
  StageCost sum_;
};

void SetSeconds(LayerCost& cost, const DeviceRates& rates) {
  for (Work* work : {&cost.forward, &cost.input_grad, &cost.weight_grad}) {
    work->seconds = Seconds(*work, rates);
  }
}

}  // namespace

Work& Work::operator+=(const Work& other) {
  flops += other.flops;
  bytes += other.bytes;
  axis_bytes += other.axis_bytes;
  seconds += other.seconds;
  return *this;
}

std::vector<TensorSpecs> LayerInputs(const std::vector<LayerSpec>& layers, const TensorSpecs& input,
                                     const std::vector<TensorSpecs>& outputs) {
  std::vector<TensorSpecs> inputs = {input};
  inputs.insert(inputs.end(), outputs.begin(), outputs.end() - 1);
  for (const Connection& connection : FindConnections(layers)) {
    const TensorSpecs& kept = outputs.at(static_cast<size_t>(connection.from));
    TensorSpecs& taken = inputs.at(static_cast<size_t>(connection.to));
    taken.insert(taken.end(), kept.begin(), kept.end());
  }
  return inputs;
}

ModelCosts CostsOf(const Job& job, const TensorSpecs& input,
                   const std::vector<TensorSpecs>& outputs, int model, Script* script) {
  const bool loss_takes_parts = model > 1 && TakesParts(job.loss);
  const std::vector<LayerSpec> layers =
      model > 1 ? LayOut(job.layers, loss_takes_parts) : job.layers;
  ModelCosts costs;
  AddOptimizer(job.optimizer, costs);
  std::vector<TensorSpecs> inputs;
  if (!input.empty()) inputs = LayerInputs(layers, input, outputs);
  for (size_t i = 0; i < layers.size(); ++i) {
    LayerCost& cost = costs.layers.emplace_back();
    if (!input.empty()) cost = CostOf(layers[i], inputs[i], outputs[i], model, script);
    AddParameters(layers[i], model, cost);
  }
  if (!input.empty() && !job.loss.type.empty()) {
    costs.loss = CostOfLoss(job.loss, outputs.back(), layers.back().gives ? model : 1);
  }
  return costs;
}

double Seconds(const Work& work, const DeviceRates& rates) {
  const auto over = [](double amount, double rate) { return rate > 0 ? amount / rate : 0; };
  if (work.flops == 0 && work.bytes == 0 && work.axis_bytes == 0) return 0;
  return std::max(over(work.flops, rates.flops), over(work.bytes, rates.memory)) +
         over(work.axis_bytes, rates.axis) + rates.launch;
}

void SetSeconds(ModelCosts& costs, const DeviceRates& rates) {
  for (LayerCost& layer : costs.layers) SetSeconds(layer, rates);
  SetSeconds(costs.loss, rates);
  costs.update_seconds = Seconds({.bytes = costs.update_bytes}, {.memory = rates.memory});
  costs.norm_seconds = costs.clear_seconds = Seconds({.bytes = 4}, {.memory = rates.memory});
  costs.input_seconds = costs.target_seconds = 0;
  costs.is_measured = false;
}

StageCost SumLayers(const ModelCosts& costs, int begin, int end, std::span<const int> segments) {
  STRATA_CHECK(0 <= begin && begin < end && end <= static_cast<int>(costs.layers.size()))
      << begin << " to " << end << " of " << costs.layers.size();
  return Summer(costs, begin, end).Sum(segments);
}

}  // namespace strata
