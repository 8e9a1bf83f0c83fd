#include "engine/layers/layer_tape.h"

#include <algorithm>
#include <utility>

#include "engine/base/size_class.h"

namespace strata {
namespace {

int64_t Allocated(double bytes) { return AllocatedBytes(static_cast<int64_t>(bytes)); }

}  // namespace

TensorSpecs SpecsOf(const std::vector<Traced>& tensors) {
  TensorSpecs specs;
  for (const Traced& tensor : tensors) specs.push_back(tensor.spec);
  return specs;
}

LayerTape::LayerTape(const TensorSpecs& inputs, int input_parts, int model, Script* script,
                     DType compute, const LayerHost& host)
    : model_(model), script_(script), compute_(compute), host_(host) {
  cost_.parts.emplace_back();
  for (const TensorSpec& input : inputs) inputs_.push_back(Fresh(input, input_parts));
}

Traced LayerTape::Fresh(TensorSpec spec, int parts) {
  Traced tensor = {std::move(spec), static_cast<int>(storages_.size()), parts, compute_};
  storages_.push_back({tensor.bytes()});
  return tensor;
}

Traced LayerTape::Fresh(const Traced& like, double elements) {
  return Fresh({{static_cast<int64_t>(elements)}, like.spec.dtype});
}

Traced LayerTape::View(const Traced& of, TensorSpec spec) const {
  return {std::move(spec), of.storage, of.parts, compute_};
}

void LayerTape::Keep(const Traced& tensor) { storages_[tensor.storage].is_kept = true; }

void LayerTape::Defer(const Traced& input, const Traced& output) {
  Keep(input);
  storages_[input.storage].is_deferred = true;
  deferred_ += static_cast<double>(Allocated(output.bytes()));
}

LayerTape::Part::Part(LayerTape& tape, std::string kind) : tape_(tape), before_(tape.part_) {
  std::vector<LayerPart>& parts = tape.cost_.parts;
  tape.part_ = parts.size();
  parts.push_back({.kind = std::move(kind), .cost = {}});
}

/// Applies `change` to the costs of the layer and to those of the current part.
template <class Change>
void LayerTape::AddWork(const Change& change) {
  change(cost_);
  change(cost_.parts[part_].cost);
}

void LayerTape::Multiply(double flops, bool has_weight, bool is_frozen) {
  AddWork([&](LayerCost& cost) {
    cost.forward.flops += flops;
    cost.input_grad.flops += flops;
    if (has_weight && !is_frozen) cost.weight_grad.flops += flops;
    if (!has_weight) cost.input_grad.flops += flops;  // the gradients of both factors
  });
}

void LayerTape::MultiplyRows() {
  AddWork([](LayerCost& cost) { cost.multiplies_rows = true; });
}

void LayerTape::Touch(double forward, double input_grad, double weight_grad) {
  AddWork([&](LayerCost& cost) {
    cost.forward.bytes += forward;
    cost.input_grad.bytes += input_grad;
    cost.weight_grad.bytes += weight_grad;
  });
}

void LayerTape::AllAtOnce() {
  const Work moved = cost_.parts[part_].cost.weight_grad;
  AddWork([&](LayerCost& cost) {
    cost.input_grad += moved;
    cost.weight_grad.flops -= moved.flops;
    cost.weight_grad.bytes -= moved.bytes;
  });
}

void LayerTape::Cross(double forward, double input_grad) {
  AddWork([&](LayerCost& cost) {
    cost.forward.axis_bytes += forward;
    cost.input_grad.axis_bytes += input_grad;
  });
}

void LayerTape::Scratch(double forward, double backward) {
  cost_.forward_scratch = std::max(cost_.forward_scratch, Allocated(forward));
  cost_.backward_scratch = std::max(cost_.backward_scratch, Allocated(backward));
}

void LayerTape::InputGradientScratch(double bytes) {
  cost_.input_grad_scratch = std::max(cost_.input_grad_scratch, Allocated(bytes));
}

void LayerTape::Measured(const LayerMemory& memory) {
  cost_.kept_bytes += memory.kept;
  cost_.forward_scratch = std::max(cost_.forward_scratch, memory.forward_scratch);
  cost_.backward_scratch = std::max(cost_.backward_scratch, memory.backward_scratch);
}

// The first storages are those of the inputs. A kept storage is an input's, an output's, or counts
// as kept_bytes.
LayerCost LayerTape::Finish(const std::vector<Traced>& outputs) {
  LayerCost cost = cost_;
  const auto count = static_cast<int>(inputs_.size());
  const auto carried = [&](const Traced& tensor) {
    return storages_[tensor.storage].is_carried ? Allocated(tensor.bytes()) : 0;
  };
  for (const Traced& input : inputs_) {
    cost.input_bytes += Allocated(input.bytes());
    cost.carried_input += carried(input);
  }
  if (cost.carried_input == cost.input_bytes) cost.carried_input = 0;
  std::vector<int> given;
  for (const Traced& output : outputs) {
    given.push_back(output.storage);
    cost.output_bytes += Allocated(output.bytes());
    cost.carried_output += carried(output);
  }
  cost.passes_input =
      !given.empty() && std::ranges::all_of(given, [&](int s) { return s < count; });
  for (int s = 0; s < static_cast<int>(storages_.size()); ++s) {
    const Storage& storage = storages_[s];
    const int64_t bytes = Allocated(storage.bytes);
    if (s < count) {
      cost.keeps_input |= storage.is_kept;
      cost.defers_input |= storage.is_deferred;
    } else if (std::ranges::find(given, s) != given.end()) {
      cost.keeps_output |= storage.is_kept;
    } else {
      if (storage.is_kept) cost.kept_bytes += bytes;
      if (storage.is_deferred) cost.deferred_bytes += bytes;
    }
  }
  cost.deferred_bytes += static_cast<int64_t>(deferred_);
  std::erase_if(cost.parts, [](const LayerPart& part) {
    return part.cost.forward == Work() && part.cost.input_grad == Work() &&
           part.cost.weight_grad == Work();
  });
  return cost;
}

}  // namespace strata
