// TextNormaliser: what SentencePiece makes of a text before it cuts it into pieces.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/data/tokens/piece_trie.h"

namespace strata::data {

/// How SentencePiece writes a space: U+2581.
inline constexpr std::string_view kSpacePiece = "\xe2\x96\x81";

/// The bytes of the UTF-8 character that `text` begins with, by its first byte; at most all.
size_t CharacterLength(std::string_view text);

/// The rules of a model's normaliser: a map from characters to characters (NFKC and others,
/// compiled by the trainer), and what becomes of spaces.
class TextNormaliser {
 public:
  struct Rules {
    std::string map;                    // precompiled_charsmap; "" = none
    bool adds_space = true;             // before the first word (behind the last one, as a suffix)
    bool removes_spaces = true;         // at both ends, and all but one between words
    bool escapes_spaces = true;         // a space becomes kSpacePiece
    bool has_spaces_as_suffix = false;  // the model's pieces end with their spaces
  };
  /// `kept`: texts that no rule changes. Throws ConfigError for a map that is none.
  TextNormaliser(Rules rules, const PieceTrie& kept);
  TextNormaliser(const TextNormaliser&) = delete;
  TextNormaliser& operator=(const TextNormaliser&) = delete;

  std::string Normalise(std::string_view text) const;

 private:
  struct Step {
    std::string_view becomes;
    size_t takes;  // bytes
  };
  Step First(std::string_view text) const;
  Step Mapped(std::string_view text) const;
  void Append(std::string_view text, std::string& to) const;

  Rules rules_;
  const PieceTrie& kept_;
  std::vector<uint32_t> trie_;     // a double array, as darts-clone has it
  std::string_view replacements_;  // NUL behind each
};

}  // namespace strata::data
