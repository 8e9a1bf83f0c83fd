// Helpers for the declarations of layers: shape rules, checks, and parameters that several families
// share. One function for each family returns its table.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/text.h"
#include "engine/layers/layer_types.h"
#include "engine/layers/parts.h"

namespace strata::layers {

using Shape = std::vector<int64_t>;
using InferFunction = decltype(LayerType::infer);

/// The shape rule of a layer with one input tensor and one output tensor.
using UnaryRule = std::function<TensorSpec(const LayerSpec& spec, const TensorSpec& input)>;

/// An infer() that requires exactly one tensor and applies the rule.
InferFunction Unary(UnaryRule rule);
/// A rule for LayerType::is_token_wise and the like that is true for every layer of a type.
inline bool Always(const LayerSpec&) { return true; }
/// The rule for an output that has the shape and dtype of the input.
TensorSpec Same(const LayerSpec& spec, const TensorSpec& input);

/// Throws ShapeError "expects EXPECTED, got (8, 128)".
[[noreturn]] void RefuseShape(std::string_view expected, const TensorSpec& input);
/// Throws ShapeError unless the dtype is the parameters' (float32).
void ExpectParameterDType(const TensorSpec& input);
/// Throws ShapeError unless the dtype is a floating one.
void ExpectFloating(const TensorSpec& input);
/// Throws ShapeError unless the input has `dims` dims. `layout` shows them in the message: "(batch,
/// 3, height, width)".
void ExpectDims(const TensorSpec& input, size_t dims, std::string_view layout);

/// The names of the spatial dims of 1d, 2d and 3d layers, for messages and help.
struct SpatialNames {
  const char* words;    ///< "height, width"
  const char* letters;  ///< "H, W"
  const char* primed;   ///< "H', W'", for the output
};
const SpatialNames& Spatial(size_t dims);

/// Throws ConfigError unless the argument `number` is divisible by the argument `divisor`.
void ExpectDivisible(const LayerSpec& spec, std::string_view number, std::string_view divisor);

/// The dim counted from 0; a negative `dim` counts from the end. `name` is the argument's name.
/// Throws ShapeError when the input has no such dim.
int64_t WrapDim(int64_t dim, const TensorSpec& input, std::string_view name);

inline Field Number(const char* name, double value, const char* help) {
  return Field::Number(name, help).Default(value);
}

/// The arguments `device` and `dtype`, the last ones of every PyTorch layer with parameters. Here
/// all layers of nn but containers have `dtype` (own_type.h).
Field Device();
Field OwnDType();

/// The specs with "PREFIX." in front of each name.
std::vector<ParameterSpec> Prefixed(std::string_view prefix, std::vector<ParameterSpec> specs);
/// Appends `more` to `specs`.
void Append(std::vector<ParameterSpec>& specs, std::vector<ParameterSpec> more);

/// An argument that counts layers in a stack, at most 10,000. Without the limit the parameter list
/// of a mistyped number would fill the memory before any error appears.
Field LayerCount(std::string name, std::string help);

/// The argument `causal`, which PyTorch's layers do not have: an element attends to itself and to
/// earlier elements only.
Field Causal();

/// Parameters that several families share.
std::vector<ParameterSpec> LinearParameters(int64_t in, int64_t out, bool bias);
std::vector<ParameterSpec> AffineParameters(const Shape& shape, bool bias);
/// The parameters of attention whose queries, keys and values all have `embed` features.
std::vector<ParameterSpec> AttentionParameters(int64_t embed, bool bias);

/// Sets the share of all specs.
void ShareAll(std::vector<ParameterSpec>& specs, Share share);
/// Sets the shares of attention's parameters (with MultiheadAttention's names) so that each rank
/// has some of the heads.
void ShareHeads(std::vector<ParameterSpec>& specs);

/// The output shapes of the children that `spec` runs one after the other. Throws ShapeError if the
/// first child cannot take the input, and a ConfigError that names both layers if two children do
/// not fit each other.
TensorSpecs InferInside(const LayerSpec& spec, const TensorSpecs& inputs, Script* script);

/// A type that is Megatron-LM's name for `type` with a fixed split ("" for a loss). `fields` are
/// those of the type's fields that it takes.
LayerType ParallelType(const LayerType& type, std::string name, std::string split, std::string help,
                       FieldTable fields);

/// The families: one file each.
std::vector<LayerType> LinearTypes();
std::vector<LayerType> ConvolutionTypes();
std::vector<LayerType> EmbeddingTypes();
std::vector<LayerType> NormalizationTypes();
std::vector<LayerType> ActivationTypes();
std::vector<LayerType> DropoutTypes();
std::vector<LayerType> PoolingTypes();
std::vector<LayerType> ShapingTypes();
std::vector<LayerType> ContainerTypes();
std::vector<LayerType> AttentionTypes();
std::vector<LayerType> TransformerTypes();
std::vector<LayerType> LlamaTypes();
std::vector<LayerType> PairTypes();
std::vector<LayerType> RecurrentTypes();
std::vector<LayerType> SpatialTypes();
std::vector<LayerType> ConnectionTypes();
std::vector<LayerType> LossTypes();

/// The parts of a family's types (parts.h), as types.
std::vector<LayerType> TransformerParts();
std::vector<LayerType> ContainerParts();

}  // namespace strata::layers
