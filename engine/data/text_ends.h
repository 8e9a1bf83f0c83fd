// The ends of texts whose tokens lie one behind the other in prepared data (files/prepared.h).
// Internal to engine/data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "engine/data/files/prepared.h"

namespace strata::data {

/// Collects the ends while the tokens are written.
class TextEndsWriter {
 public:
  /// Says that a text of `tokens` tokens lies behind those before it.
  void Add(size_t tokens) { ends_.push_back(this->tokens() + static_cast<int64_t>(tokens)); }
  int64_t texts() const { return static_cast<int64_t>(ends_.size()); }
  /// The number of tokens of all texts.
  int64_t tokens() const { return ends_.empty() ? 0 : ends_.back(); }
  /// Writes the ends, 8 bytes each, and returns the place of the first.
  int64_t Write(PreparedWriter& to) const {
    const int64_t place = to.Align();
    to.Write(ends_.data(), ends_.size() * sizeof(ends_[0]));
    return place;
  }

 private:
  std::vector<int64_t> ends_;
};

/// Ends that TextEndsWriter has written.
class TextEnds {
 public:
  /// `ends`: the first of them. They must outlive this object.
  explicit TextEnds(const std::byte* ends) : ends_(ends) {}
  /// The number of a text's first token, counted over all texts.
  int64_t Begin(int64_t text) const { return text == 0 ? 0 : End(text - 1); }
  /// The number of the token behind its last one.
  int64_t End(int64_t text) const {
    int64_t end = 0;
    std::memcpy(&end, ends_ + static_cast<size_t>(text) * sizeof(end), sizeof(end));
    return end;
  }
  int64_t Tokens(int64_t text) const { return End(text) - Begin(text); }

 private:
  const std::byte* const ends_;
};

}  // namespace strata::data
