// RowProduct: the weight gradient of a matrix product, as in Linear and attention's projections.
// StaleGradients: the gradients that the first such product of a step may overwrite.
//
// A product of few rows spends its time on reading and writing the weight gradient: 8 rows of a
// 9216x4096 layer move 302 MB, for 4 ms of arithmetic. So the first product of a step overwrites
// the gradient of the step before. The gradient then need not be set to zero, nor those zeros be
// read.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>

namespace strata {

/// The set of gradients that still hold the sums of an earlier step. Not thread-safe.
class StaleGradients {
 public:
  /// Marks `gradient` as stale. REQUIRES: `gradient` is contiguous.
  void Mark(const at::Tensor& gradient);
  /// Returns true if `gradient` is stale, or made of stale gradients; then the caller must
  /// overwrite all of it. Afterwards it is not stale any more. If only a part of it is stale, or it
  /// is only a part of a stale gradient, that gradient is set to zero as a whole and the result is
  /// false.
  bool Take(const at::Tensor& gradient);

 private:
  std::map<const char*, at::Tensor> by_place_;  // key: address of the first byte
};

/// The tensors of one weight gradient: dweight += dy^T x, and dbias += the sum of dy's rows. A
/// stale dweight is overwritten: dweight = dy^T x.
struct RowProduct {
  at::Tensor dy;                                    ///< (rows, out)
  at::Tensor x;                                     ///< (rows, in)
  at::Tensor dweight;                               ///< (out, in)
  at::Tensor dbias;                                 ///< (out); undefined without a bias
  std::shared_ptr<StaleGradients> stale = nullptr;  ///< null: no gradient is stale

  /// Computes both sums.
  void Add() const;
};

}  // namespace strata
