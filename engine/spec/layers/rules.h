// What the families' tables and shape rules are written with.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/text.h"
#include "engine/spec/layers.h"

namespace strata::layers {

using Shape = std::vector<int64_t>;
using InferFunction = decltype(LayerType::infer);

/// A rule for one tensor in, one tensor out.
using UnaryRule = TensorSpec (*)(const LayerSpec& spec, const TensorSpec& input);

/// The layer takes exactly one tensor.
InferFunction Unary(UnaryRule rule);
/// The output has the shape and dtype of the only input, whatever they are.
TensorSpec Same(const LayerSpec& spec, const TensorSpec& input);

/// Throws ShapeError "expects EXPECTED, got (8, 128)".
[[noreturn]] void RefuseShape(std::string_view expected, const TensorSpec& input);
/// Throws ShapeError unless the dtype is the parameters' (float32).
void ExpectParameterDType(const TensorSpec& input);
/// Throws ShapeError unless the dtype is a floating one.
void ExpectFloating(const TensorSpec& input);
/// Throws ShapeError unless there are that many dims; `layout` shows them: "(batch, 3, height,
/// width)".
void ExpectDims(const TensorSpec& input, size_t dims, std::string_view layout);

/// `dim` counted from 0, where -1 is the last of `dims`; throws ShapeError when there is none.
int64_t WrapDim(int64_t dim, const TensorSpec& input, std::string_view name);

/// PyTorch's arguments that every layer with parameters has at its end.
Field Device();
Field ParameterDType();

/// `specs` with "prefix." before each name.
std::vector<ParameterSpec> Prefixed(std::string_view prefix, std::vector<ParameterSpec> specs);
/// Appends `more` to `specs`.
void Append(std::vector<ParameterSpec>& specs, std::vector<ParameterSpec> more);

/// The attention mask of language models, our addition to PyTorch's arguments.
Field Causal();

/// Parameters that several families share.
std::vector<ParameterSpec> LinearParameters(int64_t in, int64_t out, bool bias);
std::vector<ParameterSpec> AffineParameters(const Shape& shape, bool bias);
/// Of attention whose queries, keys and values all have `embed` features.
std::vector<ParameterSpec> AttentionParameters(int64_t embed, bool bias);

/// Every one of them is shared in this way.
void ShareAll(std::vector<ParameterSpec>& specs, Share share);
/// Attention's parameters, named as MultiheadAttention's: each rank has some of the heads.
void ShareHeads(std::vector<ParameterSpec>& specs);

/// The output of layers inside another. Throws ShapeError when the first cannot take the input;
/// ConfigError that names both layers when two inside do not fit.
TensorSpecs InferInside(const std::vector<LayerSpec>& layers, const TensorSpecs& inputs,
                        Script* script);

/// Another name for `type`, Megatron-LM's, with one split (a loss has none). `fields`: those of the
/// type's that it takes.
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
std::vector<LayerType> ConnectionTypes();
std::vector<LayerType> LossTypes();

}  // namespace strata::layers
