// Pieces: a sequence of tokens cut into samples for predicting the next token. Internal to
// engine/data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "engine/base/text.h"
#include "engine/data/files/mapped_file.h"
#include "engine/data/sources.h"
#include "engine/data/tokens/tokenizer.h"

namespace strata::data {

/// A sequence of tokens that are 1, 2, 4 or 8 bytes wide, in a mapped file or in memory. One or two
/// bytes have no sign.
struct TokenSequence {
  std::span<const std::byte> bytes;
  int width = 1;
  std::shared_ptr<const void> owner;  ///< keeps the bytes alive

  int64_t size() const { return static_cast<int64_t>(bytes.size()) / width; }
  /// Widens tokens begin to begin + count - 1 into `to`, as int64.
  void Copy(int64_t begin, int64_t count, std::byte* to) const;
};

/// The fewest bytes, 1, 2 or 4, that hold each token of the vocabulary.
inline int TokenWidth(const Tokenizer& tokenizer) {
  if (tokenizer.vocabulary() <= 256) return 1;
  return tokenizer.vocabulary() <= 65536 ? 2 : 4;
}

/// A sample of `tokens` tokens and as many targets, int64. `write(input, target)` writes their
/// bytes.
template <class Write>
PlainSample WholeText(int64_t tokens, const Write& write) {
  const PlainTensors half = {{{{tokens}, DType::kInt64}},
                             std::string(static_cast<size_t>(tokens) * sizeof(int64_t), '\0')};
  PlainSample sample = {half, half};
  write(reinterpret_cast<std::byte*>(sample.input.bytes.data()),
        reinterpret_cast<std::byte*>(sample.target.bytes.data()));
  return sample;
}

struct PiecesOptions {
  int64_t length = 1;  ///< tokens of a piece
  /// One of every `held_out` pieces is in the test split; 0 = there is no test split.
  int64_t held_out = 0;
  bool train = true;
  bool has_targets = true;
  int64_t vocabulary = 0;
  std::string unit;  ///< "byte", "token"
  std::string what;  ///< the beginning of the description
};

/// The number of pieces. With targets, the last piece needs one more token behind it, its last
/// target.
inline int64_t PiecesOf(const TokenSequence& tokens, int64_t length, bool has_targets) {
  return (tokens.size() - (has_targets ? 1 : 0)) / length;
}

inline void TokenSequence::Copy(int64_t begin, int64_t count, std::byte* to) const {
  const auto copy = [&]<class T>(T token) {
    const std::byte* from = bytes.data() + static_cast<size_t>(begin) * sizeof(T);
    for (int64_t i = 0; i < count; ++i, from += sizeof(T), to += sizeof(int64_t)) {
      std::memcpy(&token, from, sizeof(T));
      const auto wide = static_cast<int64_t>(token);
      std::memcpy(to, &wide, sizeof(wide));
    }
  };
  if (width == 1) return copy(uint8_t{});
  if (width == 2) return copy(uint16_t{});
  if (width == 4) return copy(int32_t{});
  copy(int64_t{});
}

/// Pieces do not overlap. The input is int64 (length), the target is the input shifted by one
/// token.
class Pieces : public Dataset {
 public:
  Pieces(TokenSequence tokens, PiecesOptions options)
      : tokens_(std::move(tokens)), options_(std::move(options)) {
    ExpectRandomReadsIfLarge(tokens_.bytes);
  }
  int64_t size() const override {
    const int64_t total = PiecesOf(tokens_, options_.length, options_.has_targets);
    return options_.held_out ? SplitSize(total, options_.held_out, options_.train) : total;
  }
  TensorSpec input() const override { return {{options_.length}, DType::kInt64}; }
  TensorSpec target() const override { return {{options_.length}, DType::kInt64}; }
  int64_t classes() const override { return options_.vocabulary; }
  bool has_targets() const override { return options_.has_targets; }
  void Read(Sample sample, std::byte* input, std::byte* target) const override {
    const int64_t place = options_.held_out
                              ? SplitPlace(sample.index, options_.held_out, options_.train)
                              : sample.index;
    if (input) tokens_.Copy(place * options_.length, options_.length, input);
    if (!target) return;
    if (!options_.has_targets) {
      std::memset(target, 0, static_cast<size_t>(target_bytes()));
      return;
    }
    tokens_.Copy(place * options_.length + 1, options_.length, target);
  }
  std::string description() const override {
    const std::string split = options_.train ? " (train)" : " (test)";
    return Str(options_.what, ", ", FormatCount(size()), " pieces of ", options_.length, " ",
               options_.unit, "s", options_.held_out ? split : "");
  }

 private:
  const TokenSequence tokens_;
  const PiecesOptions options_;
};

}  // namespace strata::data
