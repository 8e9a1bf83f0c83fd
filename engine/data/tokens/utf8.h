// Reads and writes UTF-8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace strata::data {

/// True for a continuation byte: the second or a later byte of a character.
constexpr bool IsContinuation(char c) { return (static_cast<uint8_t>(c) & 0xc0) == 0x80; }

/// The length of a character in bytes, by its first byte; 1 for a continuation byte.
constexpr size_t CharacterBytes(char first) {
  const auto byte = static_cast<uint8_t>(first);
  return byte < 0xc0 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
}

struct Character {
  char32_t code = 0;
  size_t bytes = 0;
};

/// The character that `text` begins with. It has 0 bytes if the text is not valid UTF-8 there: cut
/// off, an overlong form, a surrogate, or beyond U+10FFFF. REQUIRES: the text is not empty.
constexpr Character FirstCharacter(std::string_view text) {
  const auto first = static_cast<uint8_t>(text[0]);
  if (first < 0x80) return {first, 1};
  const size_t bytes = CharacterBytes(text[0]);
  if (bytes == 1 || first >= 0xf8 || text.size() < bytes) return {};
  char32_t code = first & (0xffu >> (bytes + 1));
  for (size_t i = 1; i < bytes; ++i) {
    if (!IsContinuation(text[i])) return {};
    code = code << 6 | (static_cast<uint8_t>(text[i]) & 0x3f);
  }
  constexpr char32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool is_surrogate = code >= 0xd800 && code < 0xe000;
  if (code < kLeast[bytes] || code > 0x10ffff || is_surrogate) return {};
  return {code, bytes};
}

/// Appends a character. REQUIRES: code <= 0x10ffff.
inline void AppendUtf8(char32_t code, std::string& to) {
  if (code < 0x80) {
    to += static_cast<char>(code);
    return;
  }
  const int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;  // number of bytes after the first
  constexpr char32_t kFirst[] = {0, 0xc0, 0xe0, 0xf0};
  to += static_cast<char>(kFirst[more] | code >> (6 * more));
  for (int i = more - 1; i >= 0; --i) to += static_cast<char>(0x80 | (code >> (6 * i) & 0x3f));
}

}  // namespace strata::data
