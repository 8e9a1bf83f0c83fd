// Tables in text: RFC 4180, with other separators.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace strata::data {

/// A cell as text, and where it begins.
struct CsvCell {
  std::string text;
  int column = 1;  ///< counted from 1, in bytes
};

/// Reads rows one by one. Cells may be in double quotes, may then hold separators, newlines and
/// doubled quotes. Lines end in \n or \r\n; empty ones are left out.
class CsvReader {
 public:
  /// `text` must outlive the reader. `path` is for errors.
  CsvReader(std::string_view text, char separator, std::string path);
  /// The next row; false at the end. Throws WorldError "PATH:LINE:COLUMN: ..." for quotes that do
  /// not close, text behind a closed quote, and bytes of zero.
  bool Next(std::vector<CsvCell>& row);
  /// "PATH:LINE", of the row's first line.
  std::string Where() const;

 private:
  void ReadCell(CsvCell& cell);
  void ReadQuoted(CsvCell& cell);
  [[noreturn]] void Refuse(size_t at, const std::string& what) const;

  const std::string_view text_;
  const char separator_;
  const std::string path_;
  size_t at_ = 0;
  size_t line_begin_ = 0;
  int line_ = 1;      // of at_
  int row_line_ = 1;  // of the row's begin
};

/// The text as a field that CsvReader reads back, RFC 4180: within quotes where it holds what
/// separates fields or lines.
std::string CsvField(const std::string& text);

}  // namespace strata::data
