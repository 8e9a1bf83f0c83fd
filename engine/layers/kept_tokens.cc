#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "engine/layers/kept_tokens.h"

#include <ATen/ops/empty.h>

#include <utility>

#include "engine/base/error.h"
#include "engine/base/text.h"

namespace strata {
namespace {

thread_local KeptTokens* current = nullptr;

/// Memory for the keys or values of `most` tokens, with the other sizes and the type of `added`.
at::Tensor RoomFor(const at::Tensor& added, int64_t most) {
  return at::empty({added.size(0), added.size(1), most, added.size(3)}, added.options());
}

}  // namespace

KeysAndValues KeptTokens::Append(const void* layer, const at::Tensor& keys,
                                 const at::Tensor& values) {
  Entry& entry = entries_[layer];
  const int64_t count = keys.size(2);
  if (entry.tokens != position_ || position_ + count > most_) {
    throw ConfigError(Str("attention has kept ", entry.tokens, " tokens of a text, and is given ",
                          count, " from place ", position_, " on, of ", most_, " at most"));
  }
  if (entry.tokens == 0) {
    entry.keys = RoomFor(keys, most_);
    entry.values = RoomFor(values, most_);
  }
  entry.keys.narrow(2, position_, count).copy_(keys);
  entry.values.narrow(2, position_, count).copy_(values);
  entry.tokens += count;
  // With no earlier tokens, attention gets the tensors themselves, as it does without keeping.
  if (position_ == 0) return {keys, values};
  return {entry.keys.narrow(2, 0, entry.tokens), entry.values.narrow(2, 0, entry.tokens)};
}

int64_t KeptTokens::bytes() const {
  int64_t bytes = 0;
  for (const auto& [layer, entry] : entries_) {
    bytes += static_cast<int64_t>(entry.keys.nbytes() + entry.values.nbytes());
  }
  return bytes;
}

TokenScope::TokenScope(KeptTokens* kept) : outer_(std::exchange(current, kept)) {}

TokenScope::~TokenScope() { current = outer_; }

int64_t TokenPosition() { return current ? current->position() : 0; }

KeysAndValues WithKept(const void* layer, const at::Tensor& keys, const at::Tensor& values) {
  return current ? current->Append(layer, keys, values) : KeysAndValues(keys, values);
}

}  // namespace strata
