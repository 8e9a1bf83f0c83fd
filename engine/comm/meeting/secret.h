// A job's secret: random bytes that its ranks get from whoever starts them, and nobody else has. It
// never crosses a network by itself; a rank shows that it has it by a keyed digest of what the
// other end has just made up. Torch-free.
#pragma once

#include <string>
#include <string_view>

namespace strata {

/// The bytes of a new secret, and of a challenge: nobody guesses them.
inline constexpr size_t kSecretBytes = 32;
/// Random bytes of the kernel's.
std::string RandomBytes(size_t count);

/// HMAC with SHA-256 (RFC 2104, FIPS 180-4): 32 bytes.
std::string HmacSha256(std::string_view key, std::string_view text);

/// True for equal texts. How long it takes says nothing of where they differ.
bool IsSameSecret(std::string_view a, std::string_view b);

/// Bytes as hex digits, so that a message of JSON or an environment variable can hold them.
std::string ToHex(std::string_view bytes);

}  // namespace strata
