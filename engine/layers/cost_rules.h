// Patterns of cost rules (LayerType::cost), and the parts that longer rules are made of.
#pragma once

#include <string>
#include <vector>

#include "engine/layers/layer_tape.h"
#include "engine/layers/layer_types.h"

namespace strata::layers {

using CostRule = decltype(LayerType::cost);

// ---- Patterns

/// The cost of a layer that calls one operator on one tensor, which reads and writes each element
/// once. LayerType::keeps says which tensor the backward reads. The backward also reads `more`
/// further tensors of the input's shape.
CostRule CallCost(int more = 0);
/// The cost of a layer whose outputs are its inputs in other shapes, in the same memory.
std::vector<Traced> ViewCost(LayerTape& tape, const LayerSpec& spec,
                             const std::vector<Traced>& inputs, const TensorSpecs& outputs);
/// The cost of a normalization. `statistics` returns the number of means that it computes.
CostRule NormCost(double (*statistics)(const LayerSpec& spec, const Traced& x));
/// The cost of a loss. Its backward keeps its input if `keeps_input`, else a tensor of the same
/// size (for a cross entropy, the log-softmax).
CostRule LossCost(bool keeps_input = true);

// ---- Parts

/// SplitOf(): how the ranks of the model axis share the layer; "" if the axis has one rank.
std::string SplitOn(const LayerTape& tape, const LayerSpec& spec);

/// Adds the memory traffic of an elementwise operator. The forward reads x and writes y. The
/// backward reads dy and one kept tensor of y's size, and writes dx.
void TouchElements(LayerTape& tape, const Traced& x, const Traced& y);
/// Adds a function of one tensor whose backward keeps its output (`keeps_output`) or else its
/// input. Returns the output.
Traced Apply(LayerTape& tape, const Traced& x, bool keeps_output);
/// Adds an adaptive average pool over the last `dims` dims, with as many windows as `output` has
/// elements in them. The backward keeps the input if there are several windows. For a single window
/// ATen calls at::mean, whose backward does not.
Traced ApplyAdaptiveMean(LayerTape& tape, const Traced& x, const TensorSpec& output, size_t dims);
Traced ApplyDropout(LayerTape& tape, const Traced& x, double p);
/// A dropout of elements on a GPU: our kernel draws the factors in both passes and keeps none.
Traced DropOnGpu(LayerTape& tape, const Traced& x);
Traced Normalize(LayerTape& tape, const Traced& x, double statistics);

/// Adds a product y = x W of `flops` operations. `weights` is the number of elements of W.
void Multiply(LayerTape& tape, const LayerSpec& spec, const Traced& x, const Traced& y,
              double flops, double weights);
/// The same as Multiply(), but the weight gradient may be deferred until the action W.
void MultiplyDeferred(LayerTape& tape, const LayerSpec& spec, const Traced& x, const Traced& y,
                      double flops, double weights);
/// Adds the product with the layer's matrix `weight`, and with its low-rank part if it has one, and
/// returns the output. This rank has `in` input features and `out` output features, which are one
/// of `parts` equal parts of all output features.
Traced ApplyLinear(LayerTape& tape, const LayerSpec& spec, std::string_view weight, const Traced& x,
                   double in, double out, int parts = 1);

}  // namespace strata::layers
