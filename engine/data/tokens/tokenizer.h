// Tokenizer: from text to tokens, and back.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace strata::data {

using TokenList = std::vector<int32_t>;

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  /// How many tokens there are: 0 to vocabulary() - 1.
  virtual int64_t vocabulary() const = 0;
  /// Adds the tokens of `text`. From any thread.
  virtual void Encode(std::string_view text, TokenList& tokens) const = 0;
  /// The bytes that a token stands for. Those of a text's tokens, one behind the other, are the
  /// text (a character may take several); what was put before its first word stays. "" for a number
  /// that is no token. From any thread.
  virtual std::string Decode(int32_t token) const = 0;
  /// The token that ends a text; -1 = there is none.
  virtual int64_t end_of_text() const { return -1; }
  /// The tokens that models of the file expect before a text. Encode() leaves them out.
  virtual TokenList before_text() const { return {}; }
  /// What a token is called: "byte", "token".
  virtual std::string unit() const { return "token"; }
};

/// A token for each byte.
std::unique_ptr<Tokenizer> MakeByteTokenizer();

/// The tokenizer of a file: Hugging Face's tokenizer.json (byte-level BPE), or a SentencePiece
/// model. Throws WorldError with the path for anything else, and for parts of a tokenizer.json that
/// are not done, by name: nothing is left out silently.
std::unique_ptr<Tokenizer> ReadTokenizer(const std::string& path);

}  // namespace strata::data
