// WordSplitter: cuts text into the words within which byte-level BPE merges, as the regular
// expressions of GPT-2, Llama 3 and Qwen 2 do.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

namespace strata::data {

/// \p{L}, \p{N} and \s of a code point.
bool IsLetter(char32_t c);
bool IsNumber(char32_t c);
bool IsSpace(char32_t c);

class WordSplitter {
 public:
  /// GPT-2's: 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
  static WordSplitter Gpt2();
  /// The splitter of this regular expression; none for one that is unknown.
  static std::optional<WordSplitter> OfRegex(std::string_view regex);

  /// Adds the words of `text`, which are all of it. Bytes that are not UTF-8 count as a symbol
  /// each.
  void Split(std::string_view text, std::vector<std::string_view>& words) const;

 private:
  /// What differs between the expressions.
  struct Style {
    bool newer;       // the rules of Llama 3: marks before letters, lines apart, any case
    int most_digits;  // of a word; 0 = any number, and a space before them
  };
  struct Cursor;
  explicit WordSplitter(Style style) : style_(style) {}
  size_t WordEnd(const Cursor& at) const;

  Style style_;
};

}  // namespace strata::data
