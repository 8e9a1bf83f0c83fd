// Normalise() walks the text once. At each position First() takes a kept piece, else the longest
// match in the model's compiled map (a double-array trie, walked byte by byte), else one character;
// bytes that are not UTF-8 become U+FFFD. Spaces are removed, escaped and added on the way. The
// cost is O(n l) for n bytes and rules of up to l bytes.
#include "engine/data/tokens/text_normaliser.h"

#include <algorithm>
#include <cstring>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/data/tokens/utf8.h"

namespace strata::data {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";  // U+FFFD

/// A unit of the double array of the library darts-clone (Yata's compact double-array trie), into
/// which the trainer compiles the map.
struct Unit {
  uint32_t bits;
  bool has_leaf() const { return bits >> 8 & 1; }
  uint32_t value() const { return bits & 0x7fffffff; }
  /// The byte that leads to this unit; the label of a leaf is never equal to a byte.
  uint32_t label() const { return bits & (0x80000000u | 0xff); }
  uint32_t offset() const { return bits >> 10 << ((bits & 0x200) >> 6); }
};

}  // namespace

size_t CharacterLength(std::string_view text) {
  return std::min(CharacterBytes(text[0]), text.size());
}

TextNormaliser::TextNormaliser(Rules rules, const PieceTrie& kept)
    : rules_(std::move(rules)), kept_(kept) {
  const std::string& map = rules_.map;
  if (map.empty()) return;
  uint32_t size = 0;
  if (map.size() > sizeof size) std::memcpy(&size, map.data(), sizeof size);
  if (size == 0 || size % sizeof(uint32_t) != 0 || size >= map.size() - sizeof size) {
    throw ConfigError("the normaliser's map is broken");
  }
  trie_.resize(size / sizeof(uint32_t));
  std::memcpy(trie_.data(), map.data() + sizeof size, size);
  replacements_ = std::string_view(map).substr(sizeof size + size);
}

/// Applies the longest rule of the map whose left side `text` begins with; `takes` is 0 if there is
/// none.
TextNormaliser::Step TextNormaliser::Mapped(std::string_view text) const {
  Step found{{}, 0};
  if (trie_.empty()) return found;
  uint32_t node = Unit{trie_[0]}.offset();
  for (size_t at = 0; at < text.size(); ++at) {
    const auto byte = static_cast<uint8_t>(text[at]);
    node ^= byte;
    if (node >= trie_.size() || Unit{trie_[node]}.label() != byte) break;
    const Unit unit{trie_[node]};
    node ^= unit.offset();
    if (node >= trie_.size()) break;
    if (!unit.has_leaf()) continue;
    const std::string_view rest =
        replacements_.substr(std::min<size_t>(Unit{trie_[node]}.value(), replacements_.size()));
    found = {rest.substr(0, rest.find('\0')), at + 1};
  }
  return found;
}

TextNormaliser::Step TextNormaliser::First(std::string_view text) const {
  if (const size_t kept = kept_.LongestPrefix(text)) return {text.substr(0, kept), kept};
  if (const Step mapped = Mapped(text); mapped.takes > 0) return mapped;
  const size_t length = FirstCharacter(text).bytes;
  if (length == 0) return {kReplacement, 1};
  return {text.substr(0, length), length};
}

void TextNormaliser::Append(std::string_view text, std::string& to) const {
  for (const char c : text) {
    if (c == ' ' && rules_.escapes_spaces) {
      to += kSpacePiece;
    } else {
      to += c;
    }
  }
}

std::string TextNormaliser::Normalise(std::string_view text) const {
  const std::string_view space = rules_.escapes_spaces ? kSpacePiece : " ";
  const auto skip_spaces = [&] {
    while (!text.empty()) {
      const Step first = First(text);
      if (first.becomes != " ") return;
      text.remove_prefix(first.takes);
    }
  };
  if (rules_.removes_spaces) skip_spaces();
  std::string to;
  if (text.empty()) return to;
  to.reserve(text.size() + text.size() / 2);
  if (rules_.adds_space && !rules_.has_spaces_as_suffix) to += space;
  bool follows_space = rules_.removes_spaces;
  while (!text.empty()) {
    auto [becomes, takes] = First(text);
    while (follows_space && becomes.starts_with(' ')) becomes.remove_prefix(1);
    if (!becomes.empty()) {
      Append(becomes, to);
      follows_space = rules_.removes_spaces && becomes.ends_with(' ');
    }
    text.remove_prefix(takes);
  }
  while (rules_.removes_spaces && to.ends_with(space)) to.resize(to.size() - space.size());
  if (rules_.adds_space && rules_.has_spaces_as_suffix) to += space;
  return to;
}

}  // namespace strata::data
