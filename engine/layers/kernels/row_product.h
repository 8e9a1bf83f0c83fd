// RowProduct: the weight gradient of a product with rows, as in Linear and attention's projections.
//
// A product of few rows spends its time on reading and writing the weight's gradient: 8 rows of a
// 9216x4096 layer move 302 MB, for 4 ms of arithmetic. So the first product of a step overwrites
// what the step before left: nobody makes it zero, and nobody reads zeros (StaleGradients).
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>

namespace strata {

/// The gradients that still hold the sums of an earlier step. Two threads must not use it at once.
class StaleGradients {
 public:
  /// REQUIRES: `gradient` is contiguous.
  void Mark(const at::Tensor& gradient);
  /// Whether `gradient` is stale, in which case the caller must overwrite all of it. It is not
  /// stale any more. Where `gradient` is a part of a stale one, that one is made zero.
  bool Take(const at::Tensor& gradient);

 private:
  std::map<const char*, at::Tensor> by_place_;  // by the first byte
};

/// The tensors of one weight gradient: dweight += dy^T x, dbias += the sum of dy's rows. A stale
/// dweight becomes dy^T x.
struct RowProduct {
  at::Tensor dy;                                    ///< (rows, out)
  at::Tensor x;                                     ///< (rows, in)
  at::Tensor dweight;                               ///< (out, in)
  at::Tensor dbias;                                 ///< (out); undefined without a bias
  std::shared_ptr<StaleGradients> stale = nullptr;  ///< null: no gradient is

  /// Computes it.
  void Add() const;
};

}  // namespace strata
