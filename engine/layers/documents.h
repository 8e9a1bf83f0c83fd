// Documents: where the documents of packed rows lie (the step pack of data), so that attention sees
// each of them alone and positions begin anew. DocumentScope: makes them known to the layers of a
// forward pass.
//
// The boundaries are the place of each token in its document, int64 (rows, tokens). This one tensor
// has a fixed shape, says where documents begin (place 0), and is what rotary and learned positions
// need; lists of starts would have as many elements as there are documents. strata.documents{}
// keeps it as a value of a connection (connections.h), so it crosses cuts with the chain's tensors.
// Layers do not get it as an input: a stage sets a scope, and no layer of ours can miss it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "engine/layers/document_limits.h"

namespace strata {

class Documents {
 public:
  /// `limits`: of the data that the rows are from.
  explicit Documents(at::Tensor places, const DocumentLimits& limits = {})
      : places_(std::move(places)), limits_(limits) {}
  /// The place of each token in its document, int64 (rows, tokens).
  const at::Tensor& places() const { return places_; }
  int64_t rows() const { return places_.size(0); }
  int64_t tokens() const { return places_.size(1); }
  /// The lengths of the documents of each row. On an accelerator the first call waits for it.
  const std::vector<std::vector<int64_t>>& lengths() const;
  /// True where query and key are of one document, bool (rows, 1, tokens, tokens); with `causal`
  /// only for keys that are not behind the query. If the limits are known, it has a DocumentMask
  /// (document_mask.h). Nothing waits for an accelerator.
  at::Tensor Mask(bool causal) const;
  /// Throws ConfigError if a row is beyond the limits, on which kernels rely. On an accelerator it
  /// waits.
  void CheckLimits() const;

 private:
  at::Tensor Starts() const;

  const at::Tensor places_;
  const DocumentLimits limits_;
  mutable std::vector<std::vector<int64_t>> lengths_;  // empty until they are asked for
  mutable at::Tensor masks_[2];
};

/// While an object lives, layers that run on its thread see the documents; null means that each row
/// is one text. Scopes nest.
class DocumentScope {
 public:
  explicit DocumentScope(const Documents* documents);
  ~DocumentScope();
  DocumentScope(const DocumentScope&) = delete;
  DocumentScope& operator=(const DocumentScope&) = delete;

 private:
  const Documents* const outer_;
};

/// The documents of the thread's innermost scope; null if each row is one text.
const Documents* CurrentDocuments();

/// Computes one attention from its query, key and value, each (N, H, T, D), with a mask as
/// scaled_dot_product_attention() takes it.
using AttentionCall = std::function<at::Tensor(const at::Tensor& query, const at::Tensor& key,
                                               const at::Tensor& value,
                                               const std::optional<at::Tensor>& mask, bool causal)>;

/// Computes `attend` within each document of the thread's scope; without one it is just the call.
/// On the CPU there is one call for each document, which costs the sum of the squares of their
/// lengths and gives the bits of the document alone. Elsewhere, and with a mask, there is one call
/// with Documents::Mask(), from which CUDA's attention takes the documents' lengths where it can.
/// Throws ConfigError unless queries and keys are the tokens of the rows.
at::Tensor WithinDocuments(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                           const std::optional<at::Tensor>& mask, bool causal,
                           const AttentionCall& attend);

}  // namespace strata
