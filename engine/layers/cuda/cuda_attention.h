// The attention that replaces scaled_dot_product_attention() on CUDA.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace strata {

/// scaled_dot_product_attention() with the same bits in every run, and gradients of the first
/// order. Query, key and value are (N, H, T, D), or without heads. If `mask` is a mask of documents
/// (document_mask.h), kernels for sequences of several lengths take it from there where they take
/// the tensors. In a test it runs on any device for which the kernels' operators are registered.
at::Tensor ScaledDotProductAttention(const at::Tensor& query, const at::Tensor& key,
                                     const at::Tensor& value, const std::optional<at::Tensor>& mask,
                                     double dropout, bool causal, std::optional<double> scale,
                                     bool grouped);

}  // namespace strata
