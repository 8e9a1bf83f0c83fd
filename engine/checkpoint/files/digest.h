// Digests of tensors and files: XXH3 with 128 bits, which runs at the speed of memory. They detect
// damage (a flipped bit, a torn write, an exchanged file). They do not detect forgery, since
// anybody can compute them.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace strata {

inline constexpr size_t kDigestDigits = 32;

/// Computes the digest of bytes that arrive in pieces. The digest does not depend on how the bytes
/// are cut into pieces.
class Hasher {
 public:
  Hasher();
  ~Hasher();
  void Add(const void* bytes, size_t count);
  /// The digest of all bytes so far, as 32 hex digits.
  std::string Digest() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// The digest of these bytes.
std::string StrongDigest(std::string_view bytes);

}  // namespace strata
