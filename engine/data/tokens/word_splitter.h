// WordSplitter: cuts a text into words as the regular expressions of GPT-2, Llama 3 and Qwen 2 do.
// Byte-level BPE merges only within a word.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

namespace strata::data {

/// The classes \p{L}, \p{N} and \s of regular expressions.
bool IsLetter(char32_t c);
bool IsNumber(char32_t c);
bool IsSpace(char32_t c);

class WordSplitter {
 public:
  /// GPT-2's: 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
  static WordSplitter Gpt2();
  /// The splitter for this regular expression; none if it is not one of the known ones.
  static std::optional<WordSplitter> OfRegex(std::string_view regex);

  /// Appends the words of `text`; together they are the whole text. A byte that is not UTF-8 counts
  /// as a symbol.
  void Split(std::string_view text, std::vector<std::string_view>& words) const;

 private:
  /// The differences between the expressions.
  struct Style {
    // The rules of Llama 3: symbols before letters, separate line ends, any case.
    bool newer;
    // The most digits of a word; 0 = any number of digits, and a space before them.
    int most_digits;
  };
  struct Cursor;
  explicit WordSplitter(Style style) : style_(style) {}
  size_t WordEnd(const Cursor& at) const;

  Style style_;
};

}  // namespace strata::data
