// Instead of a regular expression engine, WordEnd() tries the alternatives of the known expressions
// in their order by hand. It looks at each character a constant number of times, so the cost is
// linear in the text.
#include "engine/data/tokens/word_splitter.h"

#include <utf8proc.h>

#include "engine/data/tokens/utf8.h"

namespace strata::data {
namespace {

/// Stands for a byte that is not UTF-8, and for the end of the text: it is neither letter, number
/// nor space.
constexpr char32_t kSymbol = 0xfffd;

struct Letter {
  char32_t code = kSymbol;
  size_t bytes = 0;  // 0 at the end
};

Letter LetterAt(std::string_view text, size_t at) {
  if (at >= text.size()) return {};
  const Character character = FirstCharacter(text.substr(at));
  if (character.bytes == 0) return {kSymbol, 1};
  return {character.code, character.bytes};
}

bool IsLine(char32_t c) { return c == '\r' || c == '\n'; }

}  // namespace

bool IsLetter(char32_t c) {
  if (c < 0x80) return (c | 0x20) >= 'a' && (c | 0x20) <= 'z';
  const int category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

bool IsNumber(char32_t c) {
  if (c < 0x80) return c >= '0' && c <= '9';
  const int category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO;
}

bool IsSpace(char32_t c) {
  return c == ' ' || (c >= 9 && c <= 13) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
         c == 0x3000;
}

/// A position in the text, and ways to walk from it.
struct WordSplitter::Cursor {
  std::string_view text;
  size_t at;

  Letter letter(size_t from) const { return LetterAt(text, from); }
  /// The position behind the characters from `from` on for which `matches` is true, at most `most`
  /// of them.
  template <class Matches>
  size_t While(size_t from, const Matches& matches, int most = 1 << 30) const {
    for (; most > 0; --most) {
      const Letter next = letter(from);
      if (next.bytes == 0 || !matches(next.code)) break;
      from += next.bytes;
    }
    return from;
  }
};

WordSplitter WordSplitter::Gpt2() { return WordSplitter({.newer = false, .most_digits = 0}); }

std::optional<WordSplitter> WordSplitter::OfRegex(std::string_view regex) {
  struct Known {
    std::string_view regex;
    Style style;
  };
  static constexpr Known kKnown[] = {
      {R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)", {false, 0}},
      {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
       {true, 3}},
      {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
       {true, 1}},
  };
  for (const Known& known : kKnown) {
    if (known.regex == regex) return WordSplitter(known.style);
  }
  return std::nullopt;
}

/// The end of the word that begins at the cursor, by the alternatives of the expression in their
/// order.
size_t WordSplitter::WordEnd(const Cursor& cursor) const {
  const size_t at = cursor.at;
  const Letter first = cursor.letter(at);
  const size_t second_at = at + first.bytes;
  const Letter second = cursor.letter(second_at);
  const auto is_symbol = [](char32_t c) { return !IsSpace(c) && !IsLetter(c) && !IsNumber(c); };
  // Contractions: 's, 't, 're, 've, 'm, 'll, 'd
  if (first.code == '\'') {
    const auto small = [&](char32_t c) -> char32_t {
      if (!style_.newer) return c;
      // The expression ignores case, and Unicode's case folding makes the long s an s.
      return c == 0x17f ? U's' : c < 0x80 && IsLetter(c) ? c | 0x20 : c;
    };
    const char32_t one = small(second.code);
    const Letter third = cursor.letter(second_at + second.bytes);
    const char32_t two = small(third.code);
    const bool has_two =
        (one == 'r' && two == 'e') || (one == 'v' && two == 'e') || (one == 'l' && two == 'l');
    if (one == 's' || one == 't' || one == 'm' || one == 'd') return second_at + second.bytes;
    if (has_two) return second_at + second.bytes + third.bytes;
  }
  // Letters, with a space before them; in the newer style with any symbol before them
  if (IsLetter(first.code)) return cursor.While(at, IsLetter);
  const bool leads =
      style_.newer ? !IsLine(first.code) && !IsNumber(first.code) : first.code == ' ';
  if (leads && second.bytes > 0 && IsLetter(second.code)) return cursor.While(second_at, IsLetter);
  // Numbers
  if (IsNumber(first.code)) {
    return cursor.While(at, IsNumber, style_.most_digits > 0 ? style_.most_digits : 1 << 30);
  }
  if (style_.most_digits == 0 && first.code == ' ' && second.bytes > 0 && IsNumber(second.code)) {
    return cursor.While(second_at, IsNumber);
  }
  // Symbols, with a space before them; in the newer style with line ends behind them
  const bool spaced = first.code == ' ' && second.bytes > 0 && is_symbol(second.code);
  if (is_symbol(first.code) || spaced) {
    const size_t end = cursor.While(spaced ? second_at : at, is_symbol);
    return style_.newer ? cursor.While(end, IsLine) : end;
  }
  // Spaces: in the newer style up to the last line end among them; otherwise all but the last one
  // before a word
  const size_t end = cursor.While(at, IsSpace);
  size_t before_last = at, behind_line = at;
  for (size_t i = at; i < end; i += cursor.letter(i).bytes) {
    before_last = i;
    if (IsLine(cursor.letter(i).code)) behind_line = i + 1;
  }
  if (style_.newer && behind_line > at) return behind_line;
  if (end == cursor.text.size() || before_last == at) return end;
  return before_last;
}

void WordSplitter::Split(std::string_view text, std::vector<std::string_view>& words) const {
  for (size_t at = 0; at < text.size();) {
    const size_t end = WordEnd({text, at});
    words.push_back(text.substr(at, end - at));
    at = end;
  }
}

}  // namespace strata::data
