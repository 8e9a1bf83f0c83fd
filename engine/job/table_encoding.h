// TableEncoding: digests of how the cells of a table became numbers, so that two tables can be
// compared without their files.
#pragma once

#include <string>

namespace strata {

/// Each text is a digest. An empty one means that it is not known.
struct TableEncoding {
  std::string words;  ///< the words of all columns; kNone if there are none
  std::string names;  ///< the names of the columns
  /// The means and deviations by which numbers were scaled; kNone if they were not.
  std::string scales;
  std::string means;   ///< the means of the columns of numbers
  bool fills = false;  ///< missing numbers are replaced by means

  static constexpr const char* kNone = "none";

  /// Reads and writes the members, separated by "|". A text of an older version has fewer parts and
  /// no means: its fourth part has another meaning and is ignored.
  static TableEncoding FromText(const std::string& text);
  std::string ToText() const;
};

/// True if `theirs` converts the same cells to other numbers than `ours`, as far as both digests
/// are known. Both are texts of ToText(); "" = the data is not a table.
bool HasOtherNumbers(const std::string& ours, const std::string& theirs);

}  // namespace strata
