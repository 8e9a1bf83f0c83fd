#include "engine/data/tokens/tokenizer.h"

namespace strata::data {
namespace {

class Bytes : public Tokenizer {
 public:
  int64_t vocabulary() const override { return 256; }
  void Encode(std::string_view text, TokenList& tokens) const override {
    tokens.reserve(tokens.size() + text.size());
    for (const char c : text) tokens.push_back(static_cast<uint8_t>(c));
  }
  std::string Decode(int32_t token) const override {
    return token >= 0 && token < 256 ? std::string(1, static_cast<char>(token)) : "";
  }
  std::string unit() const override { return "byte"; }
};

}  // namespace

std::unique_ptr<Tokenizer> MakeByteTokenizer() { return std::make_unique<Bytes>(); }

}  // namespace strata::data
