#include "engine/data/files/csv_file.h"

#include "engine/base/error.h"
#include "engine/base/text.h"

namespace strata::data {

CsvReader::CsvReader(std::string_view text, char separator, std::string path)
    : text_(text), separator_(separator), path_(std::move(path)) {
  // Skips the byte order mark that Excel writes.
  if (text_.starts_with("\xef\xbb\xbf")) at_ = line_begin_ = 3;
}

std::string CsvReader::Where() const { return Str(path_, ":", row_line_); }

void CsvReader::Refuse(size_t at, const std::string& what) const {
  throw WorldError(Str(path_, ":", line_, ":", at - line_begin_ + 1, ": ", what));
}

bool CsvReader::Next(std::vector<CsvCell>& row) {
  row.clear();
  while (at_ < text_.size() && (text_[at_] == '\n' || text_.substr(at_, 2) == "\r\n")) {
    at_ += text_[at_] == '\n' ? 1 : 2;
    line_begin_ = at_;
    ++line_;
  }
  if (at_ == text_.size()) return false;
  row_line_ = line_;
  for (;;) {
    row.emplace_back();
    ReadCell(row.back());
    if (at_ == text_.size()) return true;
    if (text_[at_++] == separator_) continue;
    line_begin_ = at_;
    ++line_;
    return true;
  }
}

/// Reads a cell; leaves at_ at the separator, the newline or the end.
void CsvReader::ReadCell(CsvCell& cell) {
  cell.column = static_cast<int>(at_ - line_begin_) + 1;
  if (at_ < text_.size() && text_[at_] == '"') return ReadQuoted(cell);
  const size_t begin = at_;
  while (at_ < text_.size() && text_[at_] != separator_ && text_[at_] != '\n') {
    if (text_[at_] == '\0') Refuse(at_, "expected text, got a byte of zero");
    ++at_;
  }
  std::string_view text = text_.substr(begin, at_ - begin);
  const bool ends_line = at_ == text_.size() || text_[at_] == '\n';
  if (ends_line && text.ends_with('\r')) text.remove_suffix(1);
  cell.text = text;
}

void CsvReader::ReadQuoted(CsvCell& cell) {
  const size_t quote = at_;
  const int quote_line = line_;
  const size_t quote_begin = line_begin_;
  for (++at_; at_ < text_.size(); ++at_) {
    const char c = text_[at_];
    if (c == '\0') Refuse(at_, "expected text, got a byte of zero");
    if (c == '"') {
      if (text_.substr(at_ + 1, 1) != "\"") break;
      ++at_;
    }
    cell.text += text_[at_];
    if (c == '\n') {
      line_begin_ = at_ + 1;
      ++line_;
    }
  }
  if (at_ == text_.size()) {
    line_ = quote_line;
    line_begin_ = quote_begin;
    Refuse(quote, "the quote does not close");
  }
  ++at_;
  if (text_.substr(at_, 2) == "\r\n") ++at_;
  const bool ends = at_ == text_.size() || text_[at_] == separator_ || text_[at_] == '\n';
  if (!ends) Refuse(at_, "text behind a closed quote");
}

std::string CsvField(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char letter : text) quoted += letter == '"' ? "\"\"" : std::string(1, letter);
  return quoted + "\"";
}

}  // namespace strata::data
