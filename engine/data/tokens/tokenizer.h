// Tokenizer: converts text to tokens and back.
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
  /// The number of tokens; they are 0 to vocabulary() - 1.
  virtual int64_t vocabulary() const = 0;
  /// Appends the tokens of `text`. May be called from any thread.
  virtual void Encode(std::string_view text, TokenList& tokens) const = 0;
  /// As Encode(), but characters that spell a special token are ordinary characters: for texts of
  /// strangers. SentencePiece's pieces of kind user-defined are still found.
  virtual void EncodeContent(std::string_view text, TokenList& tokens) const {
    Encode(text, tokens);
  }
  /// The special token that is written as exactly `text`; -1 if there is none.
  virtual int32_t SpecialToken(std::string_view) const { return -1; }
  /// True if Encode() puts a space before every text, also before one that begins with a space.
  virtual bool adds_space() const { return false; }
  /// The bytes that a token stands for. The bytes of all tokens of a text, one after the other, are
  /// the text, including a space that was inserted before its first word; a character may be spread
  /// over several tokens. "" for a number that is not a token. May be called from any thread.
  virtual std::string Decode(int32_t token) const = 0;
  /// The token that ends a text; -1 if there is none.
  virtual int64_t end_of_text() const { return -1; }
  /// The tokens that models for this tokenizer expect before a text. Encode() does not add them.
  virtual TokenList before_text() const { return {}; }
  /// The word for a token in messages: "byte", "token".
  virtual std::string unit() const { return "token"; }
};

/// A tokenizer with one token per byte.
std::unique_ptr<Tokenizer> MakeByteTokenizer();

/// Reads the tokenizer of a file: Hugging Face's tokenizer.json (byte-level BPE), or a
/// SentencePiece model. Throws WorldError with the path for anything else, and for each part of a
/// tokenizer.json that is not supported, with its name; nothing is ignored silently that would
/// change the tokens.
std::unique_ptr<Tokenizer> ReadTokenizer(const std::string& path);

}  // namespace strata::data
