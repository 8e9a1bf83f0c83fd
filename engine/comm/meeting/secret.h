// The secret of a job: random bytes that only its ranks know; they get them from the process that
// starts them. A rank never sends the secret itself. It proves that it knows the secret by a keyed
// digest of random bytes that the other end has just made (a challenge). Torch-free.
#pragma once

#include <string>
#include <string_view>

namespace strata {

/// The number of bytes of a new secret; too many to be guessed.
inline constexpr size_t kSecretBytes = 32;
/// Returns `count` random bytes from the kernel.
std::string RandomBytes(size_t count);

/// HMAC with SHA-256 (RFC 2104, FIPS 180-4): 32 bytes.
std::string HmacSha256(std::string_view key, std::string_view text);

/// True if the texts are equal. The time it takes does not depend on where they differ.
bool IsSameSecret(std::string_view a, std::string_view b);

/// The bytes as hex digits, so that they fit into JSON or an environment variable.
std::string ToHex(std::string_view bytes);

}  // namespace strata
