// Attention on CUDA whose scores are never stored.
#pragma once

#include <ATen/core/Tensor.h>

namespace strata {

/// Whether FusedAttention() takes them: on CUDA, float32 or half precision, one width of heads that
/// is a multiple of 16 bytes.
bool CanFuseAttention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value);

/// softmax(q k^T / sqrt(D)) with dropout, times v, of (N, H, T, D); `causal` as
/// at::scaled_dot_product_attention() means it. Dropout draws as random.h says. By CUTLASS' kernels
/// (Rabe and Staats, arXiv:2112.05682; Dao et al., arXiv:2205.14135), as LibTorch has them. Other
/// than in scaled_dot_product_attention(), a gradient is added up by one block, in one order: equal
/// plans have equal bits.
at::Tensor FusedAttention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                          double dropout, bool causal);

}  // namespace strata
