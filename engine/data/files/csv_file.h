// Reads tables in text form: CSV by RFC 4180, also with other separators.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace strata::data {

/// The text of a cell, and where it begins in its line. The text is part of the table's, or belongs
/// to the reader.
struct CsvCell {
  std::string_view text;
  int column = 1;  ///< counted from 1, in bytes
};

/// Reads rows one by one. A cell may be in double quotes; it may then contain separators, newlines
/// and doubled quotes. Lines end in \n or \r\n; empty lines are skipped.
class CsvReader {
 public:
  /// `text` must outlive the reader. `path` is used in errors.
  CsvReader(std::string_view text, char separator, std::string path);
  /// Reads the next row, whose cells are valid until the next call; false at the end. Throws
  /// WorldError "PATH:LINE:COLUMN: ..." for a quote that is not closed, text behind a closed quote,
  /// and zero bytes.
  bool Next(std::vector<CsvCell>& row);
  /// "PATH:LINE" of the row's first line.
  std::string Where() const;
  /// The number of bytes read so far.
  size_t at() const { return at_; }

 private:
  size_t CellEnd(size_t at) const;
  void ReadCell(CsvCell& cell);
  void ReadQuoted(CsvCell& cell);
  std::string_view Unquoted(std::string_view text);
  [[noreturn]] void Refuse(size_t at, const std::string& what) const;

  const std::string_view text_;
  const char separator_;
  const std::string path_;
  size_t at_ = 0;
  size_t line_begin_ = 0;
  int64_t line_ = 1;                  // line number of at_
  int64_t row_line_ = 1;              // line number at which the row begins
  std::deque<std::string> unquoted_;  // texts of the row's cells with doubled quotes
};

/// The number that the text is, rounded correctly, or none. A number that is too large for a double
/// is infinite; the texts "inf" and "nan" are no numbers.
std::optional<double> NumberIn(std::string_view text);

/// Quotes a text, if needed, so that CsvReader reads it back with the separator ','.
std::string CsvField(const std::string& text);

}  // namespace strata::data
