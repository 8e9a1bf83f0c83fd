// TableEncoding: how the cells of a table became numbers, so that two tables can be compared.
#pragma once

#include <string>

namespace strata {

/// Digests; an empty one says nothing.
struct TableEncoding {
  std::string words;   ///< of all columns; kNone where there are none
  std::string names;   ///< of the columns
  std::string scales;  ///< means and deviations that numbers were scaled by; kNone = by none
  std::string means;   ///< of columns of numbers
  bool fills = false;  ///< means stand in the place of missing numbers

  static constexpr const char* kNone = "none";

  /// With "|" between the members. The text of an older version has no means: its fourth part says
  /// something else.
  static TableEncoding FromText(const std::string& text);
  std::string ToText() const;
};

/// Whether `theirs` has other numbers than `ours` for the same cells, as far as both tell. Both are
/// texts; "" = the data is no table.
bool HasOtherNumbers(const std::string& ours, const std::string& theirs);

}  // namespace strata
