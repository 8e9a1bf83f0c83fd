// utf8proc has the tables and composes. The marks behind a character are sorted here, since
// utf8proc's own sorting takes quadratic time for a long run of them. A byte that is not UTF-8 ends
// a run.
#include "engine/data/tokens/nfc.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "engine/data/tokens/utf8.h"

namespace strata::data {
namespace {

using Codes = std::vector<utf8proc_int32_t>;

int ClassOf(utf8proc_int32_t c) { return utf8proc_get_property(c)->combining_class; }

void Decompose(char32_t c, Codes& to) {
  utf8proc_int32_t parts[8];  // NFC's longest decomposition has 4
  const auto code = static_cast<utf8proc_int32_t>(c);
  int boundary = 0;  // of graphemes, which are not asked for
  const auto count =
      utf8proc_decompose_char(code, parts, std::size(parts), UTF8PROC_DECOMPOSE, &boundary);
  to.insert(to.end(), parts, parts + count);
}

/// Sorts each run of combining characters by their classes.
void Order(Codes& text) {
  for (auto begin = text.begin(); begin != text.end();) {
    const auto end = std::find_if(begin, text.end(), [](auto c) { return ClassOf(c) == 0; });
    std::ranges::stable_sort(begin, end, {}, ClassOf);
    begin = end == text.end() ? end : end + 1;
  }
}

void AppendComposed(Codes& decomposed, std::string& to) {
  Order(decomposed);
  const auto count =
      utf8proc_normalize_utf32(decomposed.data(), std::ssize(decomposed),
                               utf8proc_option_t(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
  decomposed.resize(static_cast<size_t>(count));
  for (const auto c : decomposed) AppendUtf8(static_cast<char32_t>(c), to);
  decomposed.clear();
}

}  // namespace

bool IsPlainNfc(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return static_cast<uint8_t>(c) < 0xcc; });
}

std::string ToNfc(std::string_view text) {
  std::string result;
  Codes decomposed;
  while (!text.empty()) {
    const Character character = FirstCharacter(text);
    if (character.bytes > 0) {
      Decompose(character.code, decomposed);
    } else {
      AppendComposed(decomposed, result);
      result += text[0];
    }
    text.remove_prefix(std::max<size_t>(character.bytes, 1));
  }
  AppendComposed(decomposed, result);
  return result;
}

}  // namespace strata::data
