// SHA-256 as in FIPS 180-4, HMAC as in RFC 2104.
#include "engine/comm/meeting/secret.h"

#include <sys/random.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstdint>

#include "engine/base/fd.h"

namespace strata {
namespace {

constexpr size_t kBlock = 64;

/// The first 32 bits of the fractional parts of the cube roots of the first 64 primes.
constexpr std::array<uint32_t, 64> kRounds = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

using Words = std::array<uint32_t, 8>;

/// The message schedule: expands the 16 words of a block to the 64 words of the rounds.
std::array<uint32_t, 64> Schedule(std::string_view block) {
  std::array<uint32_t, 64> w = {};
  for (size_t i = 0; i < kBlock; ++i) {
    w[i / 4] = w[i / 4] << 8 | static_cast<unsigned char>(block[i]);
  }
  for (size_t i = 16; i < w.size(); ++i) {
    const uint32_t a = w[i - 15], b = w[i - 2];
    const uint32_t low = std::rotr(a, 7) ^ std::rotr(a, 18) ^ a >> 3;
    const uint32_t high = std::rotr(b, 17) ^ std::rotr(b, 19) ^ b >> 10;
    w[i] = w[i - 16] + low + w[i - 7] + high;
  }
  return w;
}

void Compress(Words& state, std::string_view block) {
  const std::array<uint32_t, 64> w = Schedule(block);
  auto [a, b, c, d, e, f, g, h] = state;
  for (size_t i = 0; i < w.size(); ++i) {
    const uint32_t choice = (e & f) ^ (~e & g), majority = (a & b) ^ (a & c) ^ (b & c);
    const uint32_t first =
        h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) + choice + kRounds[i] + w[i];
    const uint32_t second = (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + majority;
    h = g, g = f, f = e, e = d + first, d = c, c = b, b = a, a = first + second;
  }
  const Words mixed = {a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < state.size(); ++i) state[i] += mixed[i];
}

void AppendBigEndian(std::string& bytes, uint64_t number, int count) {
  while (count-- > 0) bytes.push_back(static_cast<char>(number >> (8 * count)));
}

std::string Sha256(std::string text) {
  const uint64_t bits = 8 * text.size();
  text.push_back(static_cast<char>(0x80));
  text.resize((text.size() + 8 + kBlock - 1) / kBlock * kBlock - 8, '\0');
  AppendBigEndian(text, bits, 8);
  Words state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  for (size_t i = 0; i < text.size(); i += kBlock) {
    Compress(state, std::string_view(text).substr(i, kBlock));
  }
  std::string digest;
  for (const uint32_t word : state) AppendBigEndian(digest, word, 4);
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
  const std::string whole = key.size() > kBlock ? Sha256(std::string(key)) : std::string(key);
  const std::string inner = Sha256(Padded(whole, 0x36) += text);
  return Sha256(Padded(whole, 0x5c) += inner);
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
