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

namespace strata {

class Documents {
 public:
  explicit Documents(at::Tensor places) : places_(std::move(places)) {}
  /// The place of each token in its document, int64 (rows, tokens).
  const at::Tensor& places() const { return places_; }
  int64_t rows() const { return places_.size(0); }
  int64_t tokens() const { return places_.size(1); }
  /// The lengths of the documents of each row. On an accelerator the first call waits for it.
  const std::vector<std::vector<int64_t>>& lengths() const;
  /// True where query and key are of one document, bool (rows, 1, tokens, tokens); with `causal`
  /// only for keys that are not behind the query.
  at::Tensor Mask(bool causal) const;

 private:
  const at::Tensor places_;
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

/// One attention: query, key and value are (N, H, T, D), the mask as scaled_dot_product_attention
/// takes it.
using AttentionCall = std::function<at::Tensor(const at::Tensor& query, const at::Tensor& key,
                                               const at::Tensor& value,
                                               const std::optional<at::Tensor>& mask, bool causal)>;

/// Computes `attend` within each document of the thread's scope; without one it is just the call.
/// On the CPU there is one call for each document, which costs the sum of the squares of their
/// lengths and gives the bits of the document alone. Elsewhere, and with a mask, there is one call
/// with Documents::Mask(). Throws ConfigError unless queries and keys are the tokens of the rows.
at::Tensor WithinDocuments(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                           const std::optional<at::Tensor>& mask, bool causal,
                           const AttentionCall& attend);

}  // namespace strata
