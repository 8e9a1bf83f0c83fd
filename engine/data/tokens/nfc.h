// NFC, the composed form of Unicode, in which "e" and an acute accent are one character (Unicode
// Standard Annex 15). Tokenizers that require it normalise a text with it.
#pragma once

#include <string>
#include <string_view>

namespace strata::data {

/// True if the text is certainly in NFC because all its characters are below U+0300, which NFC
/// never changes. False does not mean that the text is not in NFC.
bool IsPlainNfc(std::string_view text);

/// The text in NFC. A byte that is not UTF-8 stays, and characters before it do not compose with
/// characters behind it. Takes O(n log n) for a text of n characters.
std::string ToNfc(std::string_view text);

}  // namespace strata::data
