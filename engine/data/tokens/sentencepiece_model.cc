#include "engine/data/tokens/sentencepiece_model.h"

#include <cmath>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/data/files/protobuf.h"

namespace strata::data {
namespace {

using Model = SentencePieceModel;

template <class Enum>
Enum EnumOf(uint64_t value, Enum last, const char* what) {
  if (value < 1 || value > static_cast<uint64_t>(last)) throw ConfigError(Str(what, " ", value));
  return static_cast<Enum>(value);
}

template <class OnField>
void ForFields(std::string_view message, OnField on_field) {
  ProtobufReader reader(message);
  for (ProtobufField field; reader.Next(field);) on_field(field);
}

Model::Piece ReadPiece(std::string_view message) {
  Model::Piece piece;
  ForFields(message, [&](const ProtobufField& field) {
    if (field.number == 1) piece.text = field.bytes;
    if (field.number == 2) piece.score = field.AsFloat();
    if (field.number == 3)
      piece.kind = EnumOf(field.value, Model::Kind::kByte, "a piece has the type");
  });
  if (!std::isfinite(piece.score)) {
    throw ConfigError(Str("the piece \"", piece.text, "\" has the score ", piece.score));
  }
  return piece;
}

void ReadTrainer(std::string_view message, Model& model) {
  ForFields(message, [&](const ProtobufField& field) {
    switch (field.number) {
      case 3:
        model.method = EnumOf(field.value, Model::Method::kChar, "the model has the type");
        break;
      case 24:
        model.rules.has_spaces_as_suffix = field.value != 0;
        break;
      case 35:
        model.has_bytes = field.value != 0;
        break;
      case 44:
        model.unknown_text = field.bytes;
        break;
      case 47:
        model.end_of_text = field.bytes;
        break;
    }
  });
}

void ReadRules(std::string_view message, TextNormaliser::Rules& rules) {
  ForFields(message, [&](const ProtobufField& field) {
    switch (field.number) {
      case 2:
        rules.map = field.bytes;
        break;
      case 3:
        rules.adds_space = field.value != 0;
        break;
      case 4:
        rules.removes_spaces = field.value != 0;
        break;
      case 5:
        rules.escapes_spaces = field.value != 0;
        break;
    }
  });
}

}  // namespace

SentencePieceModel ReadSentencePieceModel(std::string_view bytes) {
  Model model;
  TextNormaliser::Rules of_output;
  ForFields(bytes, [&](const ProtobufField& field) {
    switch (field.number) {
      case 1:
        model.pieces.push_back(ReadPiece(field.bytes));
        break;
      case 2:
        ReadTrainer(field.bytes, model);
        break;
      case 3:
        ReadRules(field.bytes, model.rules);
        break;
      case 5:
        ReadRules(field.bytes, of_output);
        break;
    }
  });
  if (!of_output.map.empty()) throw ConfigError("the model's denormalizer_spec is not done");
  return model;
}

}  // namespace strata::data
