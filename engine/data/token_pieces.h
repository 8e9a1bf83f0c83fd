// Pieces: a sequence of tokens cut into samples for predicting the next token. Internal to
// engine/data.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "engine/base/text.h"
#include "engine/data/sources.h"
#include "engine/data/tokens/tokenizer.h"

namespace strata::data {

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
inline int64_t PiecesOf(const TokenList& tokens, int64_t length, bool has_targets) {
  return (static_cast<int64_t>(tokens.size()) - (has_targets ? 1 : 0)) / length;
}

/// Pieces do not overlap. The input is int64 (length), the target is the input shifted by one
/// token.
class Pieces : public Dataset {
 public:
  Pieces(TokenList tokens, PiecesOptions options)
      : tokens_(std::move(tokens)), options_(std::move(options)) {}
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
    if (input) Copy(place * options_.length, input);
    if (!target) return;
    if (!options_.has_targets) {
      std::memset(target, 0, static_cast<size_t>(target_bytes()));
      return;
    }
    Copy(place * options_.length + 1, target);
  }
  std::string description() const override {
    const std::string split = options_.train ? " (train)" : " (test)";
    return Str(options_.what, ", ", FormatCount(size()), " pieces of ", options_.length, " ",
               options_.unit, "s", options_.held_out ? split : "");
  }

 private:
  void Copy(int64_t begin, std::byte* to) const {
    for (int64_t i = 0; i < options_.length; ++i) {
      const int64_t token = tokens_[static_cast<size_t>(begin + i)];
      std::memcpy(to + static_cast<size_t>(i) * sizeof(token), &token, sizeof(token));
    }
  }
  const TokenList tokens_;
  const PiecesOptions options_;
};

}  // namespace strata::data
