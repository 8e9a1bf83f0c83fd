// IndexShare: the range of indices (tokens, classes) that one rank of the model axis holds.
#pragma once

#include <ATen/core/Tensor.h>

#include "engine/layers/axis/axis_comm.h"

namespace strata {

/// The indices begin..end-1.
struct IndexShare {
  int64_t begin = 0;
  int64_t end = 0;    ///< one past the last
  int64_t count = 0;  ///< how many indices all ranks have together

  /// A mask: true where an index belongs to another rank. An index outside of 0..count-1 is false
  /// on every rank, so that every rank fails on it.
  at::Tensor Elsewhere(const at::Tensor& indices) const {
    return indices.ge(0)
        .logical_and_(indices.lt(begin))
        .logical_or_(indices.ge(end).logical_and_(indices.lt(count)));
  }
  /// The indices counted from `begin`; 0 where `elsewhere` is true.
  at::Tensor Own(const at::Tensor& indices, const at::Tensor& elsewhere) const {
    return indices.sub(begin).masked_fill_(elsewhere, 0);
  }
};

/// This rank's range. REQUIRES: the number of ranks divides `count`.
inline IndexShare ShareOfIndices(const AxisComm& axis, int64_t count) {
  const int64_t size = count / axis.size();
  return {axis.rank() * size, (axis.rank() + 1) * size, count};
}

}  // namespace strata
