// Normalisation to NFC in three passes: decompose every character completely, sort runs of
// combining characters by their class, and compose again from left to right. A byte that is not
// UTF-8 ends a run. The tables in the .inc files are made by make_unicode_classes.py.
#include "engine/data/tokens/nfc.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <unordered_map>

#include "engine/data/tokens/utf8.h"

namespace strata::data {
namespace {

/// A range of characters with the same combining class; they are sorted by class before they
/// compose.
struct ClassRange {
  char32_t first, last;
  uint8_t combining_class;
};

struct Composition {
  // If `second` is 0, `code` is only another code of `first`.
  char32_t code, first, second;
  bool composes;
};

#include "engine/data/tokens/unicode_compositions.inc"

// Hangul syllables compose by a rule: a leading consonant, a vowel, and perhaps a trailing
// consonant (The Unicode Standard, 3.12).
constexpr char32_t kSyllables = 0xac00, kLeads = 0x1100, kVowels = 0x1161, kTrails = 0x11a7;
constexpr char32_t kLeadCount = 19, kVowelCount = 21, kTrailCount = 28;
constexpr char32_t kSyllableCount = kLeadCount * kVowelCount * kTrailCount;

int ClassOf(char32_t c) {
  const auto* after = std::ranges::upper_bound(kClasses, c, {}, &ClassRange::first);
  if (after == std::begin(kClasses) || c > (after - 1)->last) return 0;
  return (after - 1)->combining_class;
}

void Decompose(char32_t c, std::u32string& to) {
  if (c >= kSyllables && c < kSyllables + kSyllableCount) {
    const char32_t place = c - kSyllables, pair = place / kTrailCount;
    to += kLeads + pair / kVowelCount;
    to += kVowels + pair % kVowelCount;
    if (place % kTrailCount > 0) to += kTrails + place % kTrailCount;
    return;
  }
  const auto* found = std::ranges::lower_bound(kCompositions, c, {}, &Composition::code);
  if (found == std::end(kCompositions) || found->code != c) {
    to += c;
    return;
  }
  Decompose(found->first, to);
  if (found->second) Decompose(found->second, to);
}

uint64_t PairOf(char32_t first, char32_t second) { return uint64_t{first} << 32 | second; }

/// The character that both compose to; 0 if they do not compose.
char32_t Composed(char32_t first, char32_t second) {
  const char32_t lead = first - kLeads, vowel = second - kVowels;
  if (lead < kLeadCount && vowel < kVowelCount) {
    return kSyllables + (lead * kVowelCount + vowel) * kTrailCount;
  }
  const char32_t syllable = first - kSyllables, trail = second - kTrails;
  if (syllable < kSyllableCount && syllable % kTrailCount == 0 && trail > 0 &&
      trail < kTrailCount) {
    return first + trail;
  }
  static const auto pairs = [] {
    std::unordered_map<uint64_t, char32_t> known;
    for (const Composition& one : kCompositions) {
      if (one.composes) known.emplace(PairOf(one.first, one.second), one.code);
    }
    return known;
  }();
  const auto found = pairs.find(PairOf(first, second));
  return found == pairs.end() ? 0 : found->second;
}

/// Sorts each run of combining characters by their classes.
void Order(std::u32string& text) {
  for (auto begin = text.begin(); begin != text.end();) {
    const auto end = std::find_if(begin, text.end(), [](char32_t c) { return ClassOf(c) == 0; });
    std::stable_sort(begin, end, [](char32_t a, char32_t b) { return ClassOf(a) < ClassOf(b); });
    begin = end == text.end() ? end : end + 1;
  }
}

/// Composes each character with the last starter (a character of class 0) before it, unless a
/// character between them blocks this: one of the same or a higher class.
std::u32string Compose(const std::u32string& text) {
  std::u32string composed;
  size_t starter = text.npos;
  int last_class = 0;
  for (const char32_t c : text) {
    const int own_class = ClassOf(c);
    const bool has_starter = starter != text.npos;
    const bool is_next = has_starter && composed.size() - 1 == starter;
    if (has_starter && (is_next || last_class < own_class)) {
      if (const char32_t both = Composed(composed[starter], c)) {
        composed[starter] = both;
        continue;
      }
    }
    if (own_class == 0) starter = composed.size();
    last_class = own_class;
    composed += c;
  }
  return composed;
}

}  // namespace

bool IsPlainNfc(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return static_cast<uint8_t>(c) < 0xcc; });
}

std::string ToNfc(std::string_view text) {
  std::string result;
  std::u32string decomposed;
  const auto flush = [&] {
    Order(decomposed);
    for (const char32_t c : Compose(decomposed)) AppendUtf8(c, result);
    decomposed.clear();
  };
  while (!text.empty()) {
    const Character character = FirstCharacter(text);
    if (character.bytes > 0) {
      Decompose(character.code, decomposed);
    } else {
      flush();
      result += text[0];
    }
    text.remove_prefix(std::max<size_t>(character.bytes, 1));
  }
  flush();
  return result;
}

}  // namespace strata::data
