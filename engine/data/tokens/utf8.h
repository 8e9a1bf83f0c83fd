// The bytes of UTF-8.
#pragma once

#include <cstddef>
#include <cstdint>

namespace strata::data {

/// Whether the byte goes on with a character.
constexpr bool IsTrail(char c) { return (static_cast<uint8_t>(c) & 0xc0) == 0x80; }

/// The bytes of a character that begins with this one; 1 for a byte that goes on with one.
constexpr size_t BytesByLead(char c) {
  const auto first = static_cast<uint8_t>(c);
  return first < 0xc0 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
}

}  // namespace strata::data
