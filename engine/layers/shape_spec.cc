// Declarations of Identity, Flatten and Unflatten: the same elements in another shape.
#include <algorithm>

#include "engine/layers/cost_rules.h"
#include "engine/layers/rules.h"

namespace strata::layers {
namespace {

TensorSpec InferFlatten(const LayerSpec& spec, const TensorSpec& input) {
  const int64_t start = WrapDim(spec.Int("start_dim"), input, "start_dim");
  const int64_t end = WrapDim(spec.Int("end_dim"), input, "end_dim");
  if (start > end) {
    RefuseShape(Str("start_dim ", start, " to come before end_dim ", end), input);
  }
  const std::span<const int64_t> sizes = input.shape;
  TensorSpec output = {{}, input.dtype};
  output.shape.assign(sizes.begin(), sizes.begin() + start);
  output.shape.push_back(Product(sizes.subspan(start, end - start + 1)));
  output.shape.insert(output.shape.end(), sizes.begin() + end + 1, sizes.end());
  return output;
}

void FinishUnflatten(LayerSpec& spec) {
  const Shape sizes = spec.Ints("unflattened_size");
  if (sizes.empty()) throw ConfigError("unflattened_size is empty");
  if (std::count(sizes.begin(), sizes.end(), -1) > 1) {
    throw ConfigError("unflattened_size has more than one -1");
  }
  if (std::count(sizes.begin(), sizes.end(), 0) > 0) {
    throw ConfigError("unflattened_size has a 0");
  }
}

TensorSpec InferUnflatten(const LayerSpec& spec, const TensorSpec& input) {
  const int64_t dim = WrapDim(spec.Int("dim"), input, "dim");
  Shape sizes = spec.Ints("unflattened_size");
  const auto open = std::find(sizes.begin(), sizes.end(), -1);
  const int64_t known = open == sizes.end() ? Product(sizes) : -Product(sizes);
  const int64_t size = input.shape[dim];
  if (open == sizes.end() ? known != size : size % known != 0) {
    RefuseShape(Str("dim ", dim, " to split into ", FormatShape(sizes)), input);
  }
  if (open != sizes.end()) *open = size / known;
  TensorSpec output = input;
  output.shape.erase(output.shape.begin() + dim);
  output.shape.insert(output.shape.begin() + dim, sizes.begin(), sizes.end());
  return output;
}

}  // namespace

std::vector<LayerType> ShapingTypes() {
  return {
      {.name = "Identity",
       .fields = {},
       .help = "its input",
       .shapes = "(...) -> (...)",
       .elementwise = true,
       .keeps = Keeps::kNothing,
       .infer = Unary(Same),
       .cost = ViewCost},
      {.name = "Flatten",
       .fields = {Field::Int("start_dim", "first of the dims that become one").Default(1),
                  Field::Int("end_dim", "last of them; -1 is the last of all").Default(-1)},
       .help = "joins dims into one",
       .shapes = "(N, ...) -> (N, all others) with the defaults",
       .keeps = Keeps::kNothing,
       .infer = Unary(InferFlatten),
       .cost = ViewCost},
      {.name = "Unflatten",
       .fields = {Field::Int("dim", "the dim to split"),
                  Field::Shape("unflattened_size", "its new dims; one may be -1").AtLeast(-1)},
       .help = "splits a dim into several",
       .shapes = "(..., dim, ...) -> (..., unflattened_size, ...)",
       .keeps = Keeps::kNothing,
       .finish = FinishUnflatten,
       .infer = Unary(InferUnflatten),
       .cost = ViewCost},
  };
}

}  // namespace strata::layers
