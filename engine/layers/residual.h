// The end of a residual block, x + dropout(f), and the norm that follows it. On a GPU one kernel
// computes both (cuda/norm_kernels.h), also if the norm belongs to the next layer of the chain:
//
//   Residual{..., Dropout}      the sum, and the norm of it, which the next layer's norm keeps
//   Residual{LayerNorm, ...}    the norm is called with that sum, and returns what it has kept
//
// LinkNorms() tells each layer which norm follows its sum. The bits are those of one kernel after
// the other, so it does not matter which layers a plan's cuts separate. That holds for a sum with
// several users too: the norm is the first of them, so that autograd adds its gradient last.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <span>

#include "engine/layers/cuda/dropout_kernels.h"
#include "engine/layers/layer.h"

namespace strata {

/// Implemented by norms that can be computed together with a sum.
class NormAfterSum {
 public:
  virtual ~NormAfterSum() = default;
  /// The sum. Its norm is kept for the Forward() of it, which comes next. None if the kernels do
  /// not take the sum or the norm's weights.
  virtual std::optional<at::Tensor> SumAndKeep(const SumCall& sum, const Pass& pass) = 0;
};

/// Implemented by layers that may begin with a norm of their input.
class BeginsWithNorm {
 public:
  virtual ~BeginsWithNorm() = default;
  virtual NormAfterSum* first_norm() = 0;  ///< null: they do not
};

/// Implemented by layers that may end with a sum.
class EndsWithSum {
 public:
  virtual ~EndsWithSum() = default;
  /// `norm`: the norm that follows, which must live as long as this layer; null: none.
  virtual void set_next_norm(NormAfterSum* norm) = 0;
};

/// Tells the layers of a chain which norms follow their sums. The last one has none.
void LinkNorms(std::span<Layer* const> chain);

/// The norm that the layer applies to its input before anything else; null: none.
NormAfterSum* FirstNormOf(Layer& layer);

/// True if a norm of `layer` may run with the sum that ends `before`.
bool MayRunTogether(Layer& before, Layer& layer);

/// x + dropout(f), together with `norm` if it is not null and the kernels take both. `p`: of the
/// dropout in training.
at::Tensor ResidualSum(const at::Tensor& x, const at::Tensor& f, double p, NormAfterSum* norm,
                       const Pass& pass);

/// While an object lives that is made with true, sums and norms run apart on this thread: an
/// examiner looks at the gradients between them.
class NormsApart {
 public:
  explicit NormsApart(bool apart);
  ~NormsApart();
  NormsApart(const NormsApart&) = delete;
  NormsApart& operator=(const NormsApart&) = delete;

 private:
  const bool before_;
};

}  // namespace strata
