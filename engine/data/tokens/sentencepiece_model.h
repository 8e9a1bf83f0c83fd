// The content of a SentencePiece model file: its pieces, and how texts are cut into them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/data/tokens/text_normaliser.h"

namespace strata::data {

struct SentencePieceModel {
  // The values are those of sentencepiece_model.proto.
  enum class Kind { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };
  enum class Method { kUnigram = 1, kBpe, kWord, kChar };

  struct Piece {
    std::string text;
    float score = 0;
    Kind kind = Kind::kNormal;
    /// True if the piece can occur in a text. Other pieces stand for bytes, or are inserted by
    /// programs.
    bool is_of_texts() const {
      return kind == Kind::kNormal || kind == Kind::kUserDefined || kind == Kind::kUnused;
    }
  };

  std::vector<Piece> pieces;  // indexed by token
  Method method = Method::kUnigram;
  TextNormaliser::Rules rules;
  bool has_bytes = false;  // unknown characters become tokens of their bytes
  std::string unknown_text = " \xe2\x81\x87 ";
  std::string end_of_text = "</s>";  // text of the piece that ends a text
};

/// Reads the message ModelProto. Throws ConfigError for bytes that are not such a message.
SentencePieceModel ReadSentencePieceModel(std::string_view bytes);

}  // namespace strata::data
