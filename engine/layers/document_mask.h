// DocumentMask: what a mask of packed rows stands for. Documents::Mask() attaches it to the mask,
// so a kernel for sequences of several lengths can compute the same attention without the mask, and
// a kernel that does not know of it uses the mask. A tensor that is computed from the mask has
// none.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/TensorImpl.h>

#include <optional>
#include <utility>

namespace strata {

struct DocumentMask : c10::BackendMeta {
  DocumentMask(at::Tensor of, int64_t longest_document, bool is_causal)
      : starts(std::move(of)), longest(longest_document), causal(is_causal) {}
  /// The first token of each document, counted over all rows, and the number of all tokens at the
  /// end and for each document that is missing: int32 (documents at most + 1).
  const at::Tensor starts;
  const int64_t longest;  ///< no document has more tokens
  const bool causal;      ///< a query does not see the keys behind it
};

/// What `mask` stands for; null if it is not a mask of documents whose limits are known.
inline const DocumentMask* DocumentMaskOf(const std::optional<at::Tensor>& mask) {
  if (!mask || !mask->defined()) return nullptr;
  return dynamic_cast<const DocumentMask*>(mask->unsafeGetTensorImpl()->get_backend_meta());
}

}  // namespace strata
