// XXH_INLINE_ALL makes XXH3 a header-only library.
#include "engine/checkpoint/files/digest.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <array>

namespace strata {

struct Hasher::State {
  XXH3_state_t xxh;
};

Hasher::Hasher() : state_(std::make_unique<State>()) { XXH3_128bits_reset(&state_->xxh); }

Hasher::~Hasher() = default;

void Hasher::Add(const void* bytes, size_t count) {
  if (count > 0) XXH3_128bits_update(&state_->xxh, bytes, count);
}

std::string Hasher::Digest() const {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(&state_->xxh));
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : canonical.digest) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

std::string StrongDigest(std::string_view bytes) {
  Hasher hasher;
  hasher.Add(bytes.data(), bytes.size());
  return hasher.Digest();
}

}  // namespace strata
