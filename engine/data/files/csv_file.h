// Reads tables in text form: CSV by RFC 4180, also with other separators.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace strata::data {

/// The text of a cell, and where it begins in its line.
struct CsvCell {
  std::string text;
  int column = 1;  ///< counted from 1, in bytes
};

/// Reads rows one by one. A cell may be in double quotes; it may then contain separators, newlines
/// and doubled quotes. Lines end in \n or \r\n; empty lines are skipped.
class CsvReader {
 public:
  /// `text` must outlive the reader. `path` is used in errors.
  CsvReader(std::string_view text, char separator, std::string path);
  /// Reads the next row; false at the end. Throws WorldError "PATH:LINE:COLUMN: ..." for a quote
  /// that is not closed, text behind a closed quote, and zero bytes.
  bool Next(std::vector<CsvCell>& row);
  /// "PATH:LINE" of the row's first line.
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
  int line_ = 1;      // line number of at_
  int row_line_ = 1;  // line number at which the row begins
};

/// Quotes a text, if needed, so that CsvReader reads it back with the separator ','.
std::string CsvField(const std::string& text);

}  // namespace strata::data
