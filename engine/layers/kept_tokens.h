// KeptTokens: the key/value cache of attention while a text is generated, so that each new token
// costs the work of one token only. TokenScope: makes it available to the layers of a forward pass.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <utility>

namespace strata {

/// Keys and values, each (N, H, T, D): texts, heads, tokens, features of a head.
using KeysAndValues = std::pair<at::Tensor, at::Tensor>;

/// The cached keys and values of a batch of texts of equal length, for every attention layer that
/// runs on them. Each layer allocates memory for `most` tokens at once, so nothing is copied when
/// the texts grow.
class KeptTokens {
 public:
  explicit KeptTokens(int64_t most) : most_(most) {}
  KeptTokens(const KeptTokens&) = delete;
  KeptTokens& operator=(const KeptTokens&) = delete;

  /// The number of tokens of each text that precede the tokens of the current forward pass.
  int64_t position() const { return position_; }
  /// Must be called after a forward pass of `count` tokens.
  void Advance(int64_t count) { position_ += count; }
  /// Appends the keys and values of the current tokens, which begin at position(), to those kept
  /// for `layer`, and returns all of them. Throws ConfigError if the layer has not kept exactly the
  /// position() tokens before (it ran twice in a forward pass, or was skipped in one), or if there
  /// are more than `most` tokens.
  KeysAndValues Append(const void* layer, const at::Tensor& keys, const at::Tensor& values);
  /// The memory of all kept keys and values, including the room for later tokens.
  int64_t bytes() const;

 private:
  struct Entry {
    at::Tensor keys, values;  // of `most_` tokens
    int64_t tokens = 0;
  };
  const int64_t most_;
  int64_t position_ = 0;
  std::map<const void*, Entry> entries_;
};

/// While an object lives, layers that run on its thread use `kept`. Null means that whole texts
/// come in and nothing is kept. Scopes nest.
class TokenScope {
 public:
  explicit TokenScope(KeptTokens* kept);
  ~TokenScope();
  TokenScope(const TokenScope&) = delete;
  TokenScope& operator=(const TokenScope&) = delete;

 private:
  KeptTokens* const outer_;
};

/// The position, within its text, of the first token of the current forward pass, from the thread's
/// innermost scope. It is 0 if whole texts come in.
int64_t TokenPosition();

/// The keys and values that the tokens of this forward pass attend to: the given ones, preceded by
/// the kept ones if the thread's innermost scope keeps tokens (then KeptTokens::Append()).
KeysAndValues WithKept(const void* layer, const at::Tensor& keys, const at::Tensor& values);

}  // namespace strata
