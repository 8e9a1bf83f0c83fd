// The layers that only change shapes: Flatten, Unflatten and Identity.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "engine/layers/families.h"

namespace strata {
namespace {

constexpr LayerEntry kLayers[] = {
    {"Identity", [](const at::Tensor& x, const Value&) { return x; }},
    {"Flatten",
     [](const at::Tensor& x, const Value& args) {
       return x.flatten(args["start_dim"].as_int(), args["end_dim"].as_int());
     }},
    {"Unflatten",
     [](const at::Tensor& x, const Value& args) {
       return x.unflatten(args["dim"].as_int(), args["unflattened_size"].as_ints());
     }},
};

}  // namespace

LayerTable ShapingLayers() { return kLayers; }

}  // namespace strata
