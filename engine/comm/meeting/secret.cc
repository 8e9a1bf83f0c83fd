// The library libmd computes SHA-256. It has no HMAC, so this file computes that by RFC 2104.
#include "engine/comm/meeting/secret.h"

#include <sha2.h>
#include <sys/random.h>

#include <cerrno>
#include <cstdint>

#include "engine/base/fd.h"

namespace strata {
namespace {

constexpr size_t kBlock = SHA256_BLOCK_LENGTH;

/// SHA-256 of both texts, one behind the other.
std::string Sha256(std::string_view first, std::string_view second = {}) {
  SHA2_CTX state;
  SHA256Init(&state);
  for (const std::string_view text : {first, second}) {
    SHA256Update(&state, reinterpret_cast<const uint8_t*>(text.data()), text.size());
  }
  std::string digest(SHA256_DIGEST_LENGTH, '\0');
  SHA256Final(reinterpret_cast<uint8_t*>(digest.data()), &state);
  return digest;
}

/// The key, padded with zeros to the size of a block, with `pad` XORed into each byte.
std::string Padded(std::string key, char pad) {
  key.resize(kBlock, '\0');
  for (char& byte : key) byte = static_cast<char>(byte ^ pad);
  return key;
}

}  // namespace

std::string RandomBytes(size_t count) {
  std::string bytes(count, '\0');
  ssize_t got;
  while ((got = ::getrandom(bytes.data(), count, 0)) < 0 && errno == EINTR) continue;
  if (got != static_cast<ssize_t>(count)) ThrowErrno("random bytes");
  return bytes;
}

std::string HmacSha256(std::string_view key, std::string_view text) {
  const std::string whole = key.size() > kBlock ? Sha256(key) : std::string(key);
  return Sha256(Padded(whole, 0x5c), Sha256(Padded(whole, 0x36), text));
}

bool IsSameSecret(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned char difference = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference = static_cast<unsigned char>(difference | (a[i] ^ b[i]));
  }
  return difference == 0;
}

std::string ToHex(std::string_view bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string hex;
  for (const char byte : bytes) {
    const auto value = static_cast<unsigned char>(byte);
    hex += {kDigits[value / 16], kDigits[value % 16]};
  }
  return hex;
}

}  // namespace strata
