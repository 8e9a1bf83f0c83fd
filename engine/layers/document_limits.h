// DocumentLimits: the most that packed rows hold, which the data knows before a row is read. Free
// of LibTorch.
#pragma once

#include <algorithm>
#include <cstdint>

namespace strata {

struct DocumentLimits {
  int64_t in_row = 0;  ///< documents of one row, with those of the padding; 0 = not known
  int64_t tokens = 0;  ///< tokens of one document; 0 = not known
  bool known() const { return in_row > 0 && tokens > 0; }
  friend bool operator==(const DocumentLimits&, const DocumentLimits&) = default;
};

/// The limits that hold for both; not known if one of them is not.
inline DocumentLimits Both(const DocumentLimits& a, const DocumentLimits& b) {
  if (!a.known() || !b.known()) return {};
  return {std::max(a.in_row, b.in_row), std::max(a.tokens, b.tokens)};
}

}  // namespace strata
