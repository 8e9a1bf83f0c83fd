#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "engine/layers/documents.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/layers/document_mask.h"

namespace strata {
namespace {

thread_local const Documents* current = nullptr;

void CheckTokens(const Documents& documents, const char* what, const at::Tensor& x) {
  const bool has_heads = x.dim() == 4;
  if (has_heads && x.size(0) == documents.rows() && x.size(2) == documents.tokens()) return;
  throw ConfigError(Str("attention within documents expects ", what, " of the ", documents.rows(),
                        " packed rows of ", documents.tokens(),
                        " tokens, (N, heads, T, features); ", "got ", FormatShape(x.sizes())));
}

/// The mask of the script, restricted to documents: numbers become -infinity where a query does not
/// see a key.
at::Tensor Restricted(const at::Tensor& mask, const at::Tensor& seen) {
  if (mask.scalar_type() == at::kBool) return mask.logical_and(seen);
  return at::zeros({1}, mask.options())
      .masked_fill(seen.logical_not(), -std::numeric_limits<double>::infinity())
      .add(mask);
}

}  // namespace

const std::vector<std::vector<int64_t>>& Documents::lengths() const {
  if (!lengths_.empty()) return lengths_;
  const at::Tensor host = places_.cpu().contiguous();
  const int64_t* place = host.const_data_ptr<int64_t>();
  for (int64_t row = 0; row < rows(); ++row) {
    std::vector<int64_t>& of_row = lengths_.emplace_back();
    for (int64_t token = 0; token < tokens(); ++token, ++place) {
      if (token == 0 || *place == 0) of_row.push_back(0);
      ++of_row.back();
    }
  }
  return lengths_;
}

at::Tensor Documents::Mask(bool causal) const {
  at::Tensor& mask = masks_[causal ? 1 : 0];
  if (mask.defined()) return mask;
  const at::Tensor number = places_.eq(0).cumsum(1);
  mask = number.unsqueeze(1).eq(number.unsqueeze(2)).unsqueeze(1);
  if (causal) {
    mask = mask.logical_and(at::ones({tokens(), tokens()}, mask.options()).tril());
  }
  if (limits_.known()) {
    mask.unsafeGetTensorImpl()->set_backend_meta(
        c10::make_intrusive<DocumentMask>(Starts(), limits_.tokens, causal));
  }
  return mask;
}

/// DocumentMask::starts. Its size follows from the limits, so that no host has to know how many
/// documents there are: documents that are missing begin at the end and have no tokens.
at::Tensor Documents::Starts() const {
  const int64_t all = rows() * tokens(), most = rows() * limits_.in_row;
  const at::Tensor begins = places_.flatten().eq(0);
  const at::Tensor number = begins.cumsum(0).sub(1).masked_fill(begins.logical_not(), most);
  const auto options = places_.options().dtype(at::kInt);
  const at::Tensor at = at::arange(all, options).masked_fill(begins.logical_not(), all);
  return at::full({most + 1}, all, options).scatter(0, number, at);
}

void Documents::CheckLimits() const {
  if (!limits_.known()) return;
  for (size_t row = 0; row < lengths().size(); ++row) {
    const std::vector<int64_t>& of_row = lengths()[row];
    const int64_t longest = *std::ranges::max_element(of_row);
    if (std::ssize(of_row) <= limits_.in_row && longest <= limits_.tokens) continue;
    throw ConfigError(Str("row ", row, " has ", Plural(std::ssize(of_row), "document"),
                          ", the longest of ", longest, " tokens; the data of the job has at most ",
                          limits_.in_row, " in a row, of at most ", limits_.tokens, " tokens"));
  }
}

DocumentScope::DocumentScope(const Documents* documents)
    : outer_(std::exchange(current, documents)) {}

DocumentScope::~DocumentScope() { current = outer_; }

const Documents* CurrentDocuments() { return current; }

at::Tensor WithinDocuments(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                           const std::optional<at::Tensor>& mask, bool causal,
                           const AttentionCall& attend) {
  const Documents* const documents = current;
  if (!documents) return attend(query, key, value, mask, causal);
  CheckTokens(*documents, "queries", query);
  CheckTokens(*documents, "keys", key);
  const bool has_mask = mask && mask->defined();
  if (has_mask || !query.is_cpu()) {
    const at::Tensor seen = documents->Mask(causal);
    return attend(query, key, value, has_mask ? Restricted(*mask, seen) : seen, /*causal=*/false);
  }
  // Outputs are put behind each other as (tokens, heads, features), the order in which they are
  // stored and read next. Splits have one node in the graph for all parts, narrow() would have one
  // for each, with a gradient of the size of the whole row.
  std::vector<at::Tensor> outputs;
  const auto queries = query.split(1), keys = key.split(1), values = value.split(1);
  for (size_t row = 0; row < queries.size(); ++row) {
    const std::vector<int64_t>& lengths = documents->lengths()[row];
    const auto q = queries[row].split_with_sizes(lengths, 2);
    const auto k = keys[row].split_with_sizes(lengths, 2);
    const auto v = values[row].split_with_sizes(lengths, 2);
    for (size_t i = 0; i < lengths.size(); ++i) {
      outputs.push_back(attend(q[i], k[i], v[i], mask, causal).squeeze(0).transpose(0, 1));
    }
  }
  return at::cat(outputs, 0).unflatten(0, {documents->rows(), documents->tokens()}).transpose(1, 2);
}

}  // namespace strata
