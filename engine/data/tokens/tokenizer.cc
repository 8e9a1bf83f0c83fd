#include "engine/data/tokens/tokenizer.h"

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/data/tokens/tokenizer_files.h"

namespace strata::data {
namespace {

class Bytes : public Tokenizer {
 public:
  int64_t vocabulary() const override { return 256; }
  void Encode(std::string_view text, TokenList& tokens) const override {
    const auto* bytes = reinterpret_cast<const uint8_t*>(text.data());
    tokens.insert(tokens.end(), bytes, bytes + text.size());
  }
  std::string Decode(int32_t token) const override {
    return token >= 0 && token < 256 ? std::string(1, static_cast<char>(token)) : "";
  }
  std::string unit() const override { return "byte"; }
};

}  // namespace

std::unique_ptr<Tokenizer> MakeByteTokenizer() { return std::make_unique<Bytes>(); }

std::unique_ptr<Tokenizer> ReadTokenizer(const std::string& path) {
  const MappedFile file(path, "a tokenizer");
  const std::string_view begin = Trim(file.text().substr(0, 100));
  constexpr char kFirstPiece = 0x0a;  // protobuf's key for field 1 with a length: the first piece
  try {
    if (begin.starts_with('{')) return ReadByteLevelBpe(file);
    if (file.text().starts_with(kFirstPiece)) return ReadSentencePiece(file);
  } catch (const ConfigError& error) {
    throw WorldError(Str(path, ": ", error.what()));
  }
  throw WorldError(Str(path, ": expected a Hugging Face tokenizer.json, or a SentencePiece model"));
}

}  // namespace strata::data
