// KeptTokens: what attention keeps of a text while the text is written, so that a further token
// costs one token's work; and TokenScope, through which layers find it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <utility>

namespace strata {

/// Each (N, H, T, D).
using KeysAndValues = std::pair<at::Tensor, at::Tensor>;

/// The keys and values of some texts of equal length, of every attention that runs on them. Memory
/// for `most` tokens is taken at once: nothing moves when a text grows.
class KeptTokens {
 public:
  explicit KeptTokens(int64_t most) : most_(most) {}
  KeptTokens(const KeptTokens&) = delete;
  KeptTokens& operator=(const KeptTokens&) = delete;

  /// Tokens of each text that were before those of the forward which runs.
  int64_t position() const { return position_; }
  /// To be called when a forward of `count` tokens is over.
  void Advance(int64_t count) { position_ += count; }
  /// Puts the keys and values of the tokens from position() on behind those that `layer` kept, and
  /// gives all of them. Throws ConfigError where the layer has not kept all tokens before (it ran
  /// twice in a forward, or not at all), or there are more tokens than `most`.
  KeysAndValues Append(const void* layer, const at::Tensor& keys, const at::Tensor& values);
  /// Of all keys and values.
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

/// While an object lives, layers that run on its thread find `kept` (null: whole texts come in, and
/// nothing is kept). Scopes nest.
class TokenScope {
 public:
  explicit TokenScope(KeptTokens* kept);
  ~TokenScope();
  TokenScope(const TokenScope&) = delete;
  TokenScope& operator=(const TokenScope&) = delete;

 private:
  KeptTokens* const outer_;
};

/// The place in its text of the first token that the layers see, by the innermost scope of the
/// thread; 0 where they see whole texts.
int64_t TokenPosition();

/// What the tokens of a forward attend to: with all that was kept before, where that is kept.
KeysAndValues WithKept(const void* layer, const at::Tensor& keys, const at::Tensor& values);

}  // namespace strata
