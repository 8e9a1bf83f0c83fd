// NFC, the composed form of Unicode, in which "e" and an acute accent are one character (Unicode
// Standard Annex 15): tokenizers that say so normalise a text by it.
#pragma once

#include <string>
#include <string_view>

namespace strata::data {

/// True where the text is in NFC since no character of it ever changes: below U+0300. A text for
/// which this is false may be in NFC, too.
bool IsPlainNfc(std::string_view text);

/// The text in NFC. A byte that is not UTF-8 stays, and characters before it do not join those
/// behind it. Takes O(n log n) for a text of n characters.
std::string ToNfc(std::string_view text);

}  // namespace strata::data
