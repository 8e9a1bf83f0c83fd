// ParseJson: JSON text to a Value, by rules that the reader of the text chooses.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "engine/base/value.h"

namespace strata {

struct JsonRules {
  /// The most levels of nesting. There is always a limit, since functions that walk a Value recurse
  /// once for each level.
  size_t max_depth = 1000;
  /// Refuses integers beyond +-2^53: the reader keeps numbers as doubles, which skip some of them.
  bool exact_in_doubles = false;
};

/// Reads JSON text. Integers beyond int64 become doubles. Throws ConfigError with line and column
/// for the first mistake: text that is not JSON or not UTF-8, a zero byte, a key that comes twice
/// in one object, and what the rules refuse.
Value ParseJson(std::string_view text, const JsonRules& rules = {});

/// The first byte of a text that is not UTF-8, in words; "" where there is none.
std::string Utf8Trouble(std::string_view text);

}  // namespace strata
