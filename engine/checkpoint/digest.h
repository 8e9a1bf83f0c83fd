// Digests of tensors and files: 128 bits of XXH3 at the speed of memory. They find damage (a
// flipped bit, a torn write, a file that was exchanged), not forgery: there is no secret in them.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace strata {

/// The digest of bytes that come in pieces.
class Hasher {
 public:
  Hasher();
  ~Hasher();
  void Add(const void* bytes, size_t count);
  /// 32 hex digits, of everything so far.
  std::string Digest() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// The same for bytes that are there at once.
std::string StrongDigest(std::string_view bytes);

}  // namespace strata
