// Adam and AdamW by our kernel (adamw.cu): one launch for a flat buffer.
#pragma once

#include <ATen/core/Tensor.h>

namespace strata {

struct AdamCall {
  at::Tensor values, gradients, averages, squares;
  at::Tensor copy = {};  ///< of the values in half precision; undefined: none
  int64_t step = 1;      ///< counted from 1
  double lr = 0, divisor = 1, beta1 = 0, beta2 = 0, eps = 0, decay = 0;
  bool decoupled = false, maximize = false;
};

/// Makes the step: divides the gradients, updates the rest, and writes the copy. Returns false, and
/// does nothing, if the kernel does not take these tensors.
bool AdamByKernel(const AdamCall& call);

}  // namespace strata
