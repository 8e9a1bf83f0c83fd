// ParseJson(): reads JSON text into a Value, by rules that the caller chooses.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "engine/base/value.h"

namespace strata {

struct JsonRules {
  /// The most levels of nesting. There is always a limit, since functions that walk a Value recurse
  /// once per level.
  size_t max_depth = 1000;
  /// Refuse integers beyond +-2^53. For readers that keep numbers as doubles, which cannot hold all
  /// of these integers.
  bool exact_in_doubles = false;
};

/// Reads JSON text. Integers beyond int64 become doubles. Throws ConfigError for the first mistake,
/// with its line and column: text that is not JSON or not UTF-8, a zero byte, a key that occurs
/// twice in one object, and text that the rules refuse.
Value ParseJson(std::string_view text, const JsonRules& rules = {});

/// The library's description of the first byte that is not UTF-8; "" if there is none.
std::string Utf8Trouble(std::string_view text);

}  // namespace strata
