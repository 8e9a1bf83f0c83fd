// Low-rank parts (LoRA) beside weights of a built layer; LowRankSpec (layer_spec.h) declares them.
//
// WithLowRank() wraps the layer. The wrapper owns A and B as parameters behind the layer's own, so
// that stages place, update and save them like others. The weights point to them
// (Parameter::low_rank), and ApplyLinear() (linear.h) computes their part of the output. So every
// layer that multiplies by ApplyLinear() can have them, and no layer knows of them.
#pragma once

#include <memory>

#include "engine/layers/layer.h"

namespace strata {

struct LowRank {
  Parameter a;  ///< (rank, in)
  Parameter b;  ///< (out, rank)
  double scale = 1;
  double dropout = 0;
};

/// The low-rank part of the rows begin..begin+size-1 of a weight: A, and these rows of B.
std::shared_ptr<const LowRank> RowsOf(const std::shared_ptr<const LowRank>& low_rank, int64_t begin,
                                      int64_t size);

/// Adds scale B (A dropout(x)) to `y`, the product of x and the weight; may change y in place.
at::Tensor AddLowRank(const LowRank& low_rank, const at::Tensor& x, at::Tensor y, const Pass& pass);

/// The layer with the parts that spec.low_rank declares; `layer` itself if it declares none. A has
/// the initial values of a Linear's weight (kaiming_uniform_ with a = sqrt(5), as in PEFT), drawn
/// from a scope of its own, so that all other initial values stay as they are. B is zero.
/// REQUIRES: a RandomScope.
std::unique_ptr<Layer> WithLowRank(const LayerSpec& spec, std::unique_ptr<Layer> layer);

}  // namespace strata
