// Declarations of the layers of two tensors: Bilinear, CosineSimilarity and PairwiseDistance.
#include <algorithm>
#include <utility>

#include "engine/layers/cost_rules.h"
#include "engine/layers/rules.h"

namespace strata::layers {
namespace {

using PairRule = TensorSpec (*)(const LayerSpec& spec, const TensorSpec& a, const TensorSpec& b);

InferFunction OfTwo(PairRule rule) {
  return [rule](const LayerSpec& spec, const TensorSpecs& inputs, Script*) -> TensorSpecs {
    if (inputs.size() != 2) throw ShapeError(Str("expects two tensors, got ", ToString(inputs)));
    for (const TensorSpec& input : inputs) ExpectFloating(input);
    if (inputs[0].dtype != inputs[1].dtype) {
      throw ShapeError(Str("expects two tensors of one type, got ", ToString(inputs)));
    }
    return {rule(spec, inputs[0], inputs[1])};
  };
}

// ---- Bilinear

TensorSpec InferBilinear(const LayerSpec& spec, const TensorSpec& a, const TensorSpec& b) {
  const auto fits = [&](const TensorSpec& x, const char* features) {
    return !x.shape.empty() && x.shape.back() == spec.Int(features);
  };
  Shape lead = a.shape, other = b.shape;
  if (!lead.empty()) lead.pop_back();
  if (!other.empty()) other.pop_back();
  if (!fits(a, "in1_features") || !fits(b, "in2_features") || lead != other) {
    throw ShapeError(Str("expects (..., ", spec.Int("in1_features"), ") and (..., ",
                         spec.Int("in2_features"), "), got ", ToString({a, b})));
  }
  ExpectParameterDType(a);
  lead.push_back(spec.Int("out_features"));
  return {lead, a.dtype};
}

std::vector<ParameterSpec> BilinearParameters(const LayerSpec& spec) {
  const int64_t out = spec.Int("out_features");
  std::vector<ParameterSpec> specs = {
      {.name = "weight", .shape = {out, spec.Int("in1_features"), spec.Int("in2_features")}}};
  if (spec.Bool("bias")) specs.push_back({.name = "bias", .shape = {out}});
  return specs;
}

std::vector<Traced> BilinearCost(LayerTape& tape, const LayerSpec& spec,
                                 const std::vector<Traced>& inputs, const TensorSpecs& outputs) {
  const Traced y = tape.Fresh(outputs[0]);
  const auto weights = static_cast<double>(BilinearParameters(spec)[0].elements());
  const double rows = y.elements() / spec.Number("out_features");
  Multiply(tape, spec, inputs[0], y, 2 * rows * weights, weights);
  tape.Touch(inputs[1].bytes(), 2 * inputs[1].bytes());
  for (const Traced& x : inputs) tape.Keep(x);
  tape.Scratch(0, 4 * weights);
  return {y};
}

// ---- Distances

/// The shape that two tensors are broadcast to.
Shape Broadcast(const TensorSpec& a, const TensorSpec& b) {
  Shape shape(std::max(a.shape.size(), b.shape.size()), 1);
  for (const TensorSpec* x : {&a, &b}) {
    const size_t skipped = shape.size() - x->shape.size();
    for (size_t d = 0; d < x->shape.size(); ++d) {
      int64_t& size = shape[skipped + d];
      if (size != x->shape[d] && size != 1 && x->shape[d] != 1) {
        throw ShapeError(Str("expects two tensors of one shape, got ", ToString({a, b})));
      }
      if (size == 1) size = x->shape[d];
    }
  }
  return shape;
}

TensorSpec InferSimilarity(const LayerSpec& spec, const TensorSpec& a, const TensorSpec& b) {
  TensorSpec output = {Broadcast(a, b), a.dtype};
  output.shape.erase(output.shape.begin() + WrapDim(spec.Int("dim"), output, "dim"));
  return output;
}

TensorSpec InferDistance(const LayerSpec& spec, const TensorSpec& a, const TensorSpec& b) {
  TensorSpec output = {Broadcast(a, b), a.dtype};
  if (output.shape.empty()) RefuseShape("(..., features)", output);
  output.shape.pop_back();
  if (spec.Bool("keepdim")) output.shape.push_back(1);
  return output;
}

/// The cost of a distance. The backward keeps both inputs and a tensor of their size (the
/// difference).
std::vector<Traced> DistanceCost(LayerTape& tape, const LayerSpec&,
                                 const std::vector<Traced>& inputs, const TensorSpecs& outputs) {
  const Traced y = tape.Fresh(outputs[0]);
  for (const Traced& x : inputs) {
    TouchElements(tape, x, y);
    tape.Keep(x);
  }
  tape.Keep(tape.Fresh(inputs[0]));
  tape.Scratch(inputs[0].bytes(), 2 * inputs[0].bytes());
  return {y};
}

Field Epsilon(double value) {
  return Field::Number("eps", "keeps from dividing by 0").AtLeast(0).Default(value);
}

LayerType Distance(std::string name, FieldTable fields, std::string help, PairRule rule) {
  return {.name = std::move(name),
          .fields = std::move(fields),
          .help = std::move(help),
          .shapes = "(N, D) and (N, D) -> (N)",
          .infer = OfTwo(rule),
          .cost = DistanceCost};
}

}  // namespace

std::vector<LayerType> PairTypes() {
  return {
      {.name = "Bilinear",
       .fields = {Field::Int("in1_features", "size of each first sample").AtLeast(1),
                  Field::Int("in2_features", "size of each second sample").AtLeast(1),
                  Field::Int("out_features", "size of each output sample").AtLeast(1),
                  Field::Bool("bias", "adds a learned number to each output").Default(true),
                  Device(), OwnDType()},
       .help = "x1^T A x2 + b of two tensors",
       .shapes = "(..., in1_features) and (..., in2_features) -> (..., out_features)",
       .parameters = BilinearParameters,
       .infer = OfTwo(InferBilinear),
       .cost = BilinearCost},
      Distance("CosineSimilarity",
               {Field::Int("dim", "the dim of the vectors").Default(1), Epsilon(1e-8)},
               "the cosine of the angle between two tensors' vectors", InferSimilarity),
      Distance("PairwiseDistance",
               {Field::Number("p", "which norm").Default(2.0), Epsilon(1e-6),
                Field::Bool("keepdim", "keeps the last dim, of size 1").Default(false)},
               "the norm of the difference of two tensors' vectors", InferDistance),
  };
}

}  // namespace strata::layers
