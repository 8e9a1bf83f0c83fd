// Patterns of cost rules (LayerType::cost), and the parts that longer rules are made of.
#pragma once

#include <string>
#include <vector>

#include "engine/layers/layer_tape.h"
#include "engine/layers/layer_types.h"

namespace strata::layers {

using CostRule = decltype(LayerType::cost);

// ---- Patterns

/// One call on one tensor, whose elements are read and written once. LayerType::keeps says what its
/// backward reads. The backward also reads `more` tensors in the shape of the input.
CostRule CallCost(int more = 0);
/// The outputs are the inputs in other shapes, in the same memory.
std::vector<Traced> ViewCost(LayerTape& tape, const LayerSpec& spec,
                             const std::vector<Traced>& inputs, const TensorSpecs& outputs);
/// A normalization. `statistics` gives the number of means.
CostRule NormCost(double (*statistics)(const LayerSpec& spec, const Traced& x));
/// A loss. It keeps its input, or in its place as many numbers made of it (the logarithms of a
/// cross entropy's shares).
CostRule LossCost(bool keeps_input = true);

// ---- Parts

/// How the ranks of the model axis share the layer; "" if there is one rank.
std::string SplitOn(const LayerTape& tape, const LayerSpec& spec);

/// Reads x, writes y. The backward reads dy and what was kept, and writes dx.
void TouchElements(LayerTape& tape, const Traced& x, const Traced& y);
/// A function of one tensor that keeps its input or its output.
Traced Apply(LayerTape& tape, const Traced& x, bool keeps_output);
/// Means over as many windows of the last `dims` dims as `output` has elements there. The backward
/// reads the input, but of a single window, which at::mean takes.
Traced ApplyAdaptiveMean(LayerTape& tape, const Traced& x, const TensorSpec& output, size_t dims);
Traced ApplyDropout(LayerTape& tape, const Traced& x, double p);
Traced Normalize(LayerTape& tape, const Traced& x, double statistics);

/// y = x W in `flops` operations, for a weight of so many elements.
void Multiply(LayerTape& tape, const LayerSpec& spec, const Traced& x, const Traced& y,
              double flops, double weights);
/// The same, where the weight's gradient may wait for the action W.
void MultiplyDeferred(LayerTape& tape, const LayerSpec& spec, const Traced& x, const Traced& y,
                      double flops, double weights);
/// A linear layer. This rank has `in` input features and `out` output features, one of `parts`
/// parts of all outputs.
Traced ApplyLinear(LayerTape& tape, const LayerSpec& spec, const Traced& x, double in, double out,
                   int parts = 1);

}  // namespace strata::layers
