// TextNormaliser: normalises a text as SentencePiece does before it cuts the text into pieces.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/data/tokens/piece_trie.h"

namespace strata::data {

/// The character by which SentencePiece represents a space: U+2581.
inline constexpr std::string_view kSpacePiece = "\xe2\x96\x81";

/// The length in bytes of the UTF-8 character that `text` begins with, by its first byte; at most
/// the length of the text.
size_t CharacterLength(std::string_view text);

/// Applies the rules of a model's normaliser: a map from characters to characters (NFKC and others,
/// compiled by the trainer), and the treatment of spaces.
class TextNormaliser {
 public:
  struct Rules {
    std::string map;  // precompiled_charsmap; "" = none
    // Add a space before the first word (or behind the last one, with has_spaces_as_suffix).
    bool adds_space = true;
    // Remove spaces at both ends, and all but one between words.
    bool removes_spaces = true;
    bool escapes_spaces = true;         // replace a space by kSpacePiece
    bool has_spaces_as_suffix = false;  // pieces end with their space instead of beginning with it
  };
  /// `kept` are texts that no rule changes; it must outlive this. Throws ConfigError for a broken
  /// map.
  TextNormaliser(Rules rules, const PieceTrie& kept);
  TextNormaliser(const TextNormaliser&) = delete;
  TextNormaliser& operator=(const TextNormaliser&) = delete;

  std::string Normalise(std::string_view text) const;

 private:
  struct Step {
    std::string_view becomes;
    size_t takes;  // bytes of the text that the step consumes
  };
  Step First(std::string_view text) const;
  Step Mapped(std::string_view text) const;
  void Append(std::string_view text, std::string& to) const;

  Rules rules_;
  const PieceTrie& kept_;
  // A double array in the format of darts-clone.
  std::vector<uint32_t> trie_;
  // The right sides of the map, each followed by a zero byte.
  std::string_view replacements_;
};

}  // namespace strata::data
