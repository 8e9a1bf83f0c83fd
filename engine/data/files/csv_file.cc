#include "engine/data/files/csv_file.h"

#include <bit>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "engine/base/error.h"
#include "engine/base/text.h"

namespace strata::data {
namespace {

// Below, 8 characters lie in a uint64_t, the first one in its lowest byte: a loop over the
// characters of a cell would end after an unpredictable number of rounds, which costs more than the
// rest.
static_assert(std::endian::native == std::endian::little);

/// Returns a word whose 8 bytes all are `c`.
constexpr uint64_t Each(char c) { return 0x0101010101010101 * static_cast<uint8_t>(c); }

/// The highest bit of the lowest byte that equals `c`, and perhaps bits above it; 0 if none does.
uint64_t FirstEqual(uint64_t word, uint64_t each_c) {
  const uint64_t differs = word ^ each_c;
  return (differs - Each(1)) & ~differs & Each('\x80');
}

/// Up to 8 characters, with the last one in the highest byte and '0' in front of the first.
uint64_t RightAligned(std::string_view text) {
  uint64_t word = 0;
  const size_t size = text.size();
  if (size >= 4) {  // two parts, which overlap; memcpy() with a size that varies is slow
    uint32_t begin = 0, end = 0;
    std::memcpy(&begin, text.data(), 4);
    std::memcpy(&end, text.data() + size - 4, 4);
    word = begin | static_cast<uint64_t>(end) << (8 * (size - 4));
  } else {  // the first, the middle and the last character, which may be the same one
    for (const size_t i : {size_t{0}, size / 2, size - 1}) {
      word |= static_cast<uint64_t>(text[i] & 0xff) << (8 * i);
    }
  }
  if (size == 8) return word;
  return word << (64 - 8 * size) | Each('0') >> (8 * size);
}

/// The number of 8 digits.
uint64_t NumberOfDigits(uint64_t word) {
  word -= Each('0');
  word = word * 10 + (word >> 8);  // pairs, in every second byte
  const uint64_t pairs_1_3 = word & 0x000000ff000000ff, pairs_2_4 = word >> 16 & 0x000000ff000000ff;
  return (pairs_1_3 * 0x000f424000000064 + pairs_2_4 * 0x0000271000000001) >> 32;
}

/// The number of a text of 1 to 8 characters that are digits and perhaps a point, as most numbers
/// are; none for other texts. It is rounded correctly: a double holds the digits and the power of
/// ten exactly, and the division rounds once.
std::optional<double> ShortNumber(std::string_view text) {
  static constexpr double kPowers[] = {1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7};
  if (text.empty() || text.size() > 8 || text == ".") return std::nullopt;
  uint64_t word = RightAligned(text);
  int fraction = 0;
  if (const uint64_t point = FirstEqual(word, Each('.'))) {
    const int before = std::countr_zero(point) / 8;  // number of bytes before the point
    fraction = 7 - before;
    const uint64_t low = (uint64_t{1} << (8 * before)) - 1;
    word = (word & ~(low << 8 | 0xff)) | (word & low) << 8 | '0';  // without the point
  }
  const uint64_t high_digits = word & Each('\xf0'), above_9 = (word + Each(6)) & Each('\xf0');
  if (high_digits != Each('0') || above_9 != Each('0')) return std::nullopt;
  return static_cast<double>(NumberOfDigits(word)) / kPowers[fraction];
}

}  // namespace

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
  unquoted_.clear();
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

/// The place of the next separator, newline or zero byte, or the end.
size_t CsvReader::CellEnd(size_t at) const {
  const uint64_t separators = Each(separator_);
  for (; at + 8 <= text_.size(); at += 8) {
    uint64_t word = 0;
    std::memcpy(&word, text_.data() + at, 8);
    const uint64_t ends =
        FirstEqual(word, separators) | FirstEqual(word, Each('\n')) | FirstEqual(word, 0);
    if (ends) return at + static_cast<size_t>(std::countr_zero(ends)) / 8;
  }
  const auto ends = [&](char c) { return c == separator_ || c == '\n' || c == '\0'; };
  while (at < text_.size() && !ends(text_[at])) ++at;
  return at;
}

/// Reads a cell; leaves at_ at the separator, the newline or the end.
void CsvReader::ReadCell(CsvCell& cell) {
  cell.column = static_cast<int>(at_ - line_begin_) + 1;
  if (at_ < text_.size() && text_[at_] == '"') return ReadQuoted(cell);
  const size_t begin = at_;
  const size_t at = CellEnd(begin);
  at_ = at;
  if (at < text_.size() && text_[at] == '\0') Refuse(at, "expected text, got a byte of zero");
  std::string_view text = text_.substr(begin, at_ - begin);
  const bool ends_line = at_ == text_.size() || text_[at_] == '\n';
  if (ends_line && text.ends_with('\r')) text.remove_suffix(1);
  cell.text = text;
}

/// The text with a single quote for each doubled one. It belongs to the reader.
std::string_view CsvReader::Unquoted(std::string_view text) {
  std::string& single = unquoted_.emplace_back();
  for (size_t i = 0; i < text.size(); ++i) {
    single += text[i];
    if (text[i] == '"') ++i;
  }
  return single;
}

void CsvReader::ReadQuoted(CsvCell& cell) {
  const size_t quote = at_;
  const int64_t quote_line = line_;
  const size_t quote_begin = line_begin_;
  bool has_doubled = false;
  for (++at_; at_ < text_.size(); ++at_) {
    const char c = text_[at_];
    if (c == '\0') Refuse(at_, "expected text, got a byte of zero");
    if (c == '"') {
      if (text_.substr(at_ + 1, 1) != "\"") break;
      has_doubled = true;
      ++at_;
    }
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
  cell.text = text_.substr(quote + 1, at_ - quote - 1);
  if (has_doubled) cell.text = Unquoted(cell.text);
  ++at_;
  if (text_.substr(at_, 2) == "\r\n") ++at_;
  const bool ends = at_ == text_.size() || text_[at_] == separator_ || text_[at_] == '\n';
  if (!ends) Refuse(at_, "text behind a closed quote");
}

std::optional<double> NumberIn(std::string_view text) {
  static constexpr double kSigns[] = {1, -1};  // signs are unpredictable, so there is no branch
  const size_t is_negative = text.starts_with('-') ? 1 : 0;
  if (const auto number = ShortNumber(text.substr(is_negative))) {
    return kSigns[is_negative] * *number;
  }
  if (text.starts_with('+')) text.remove_prefix(1);
  double number = 0;
  const auto [end, error] = std::from_chars(text.begin(), text.end(), number);
  if (end != text.end()) return std::nullopt;
  if (error == std::errc::result_out_of_range)
    return std::strtod(std::string(text).c_str(), nullptr);
  return error == std::errc() && std::isfinite(number) ? std::make_optional(number) : std::nullopt;
}

std::string CsvField(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char letter : text) quoted += letter == '"' ? "\"\"" : std::string(1, letter);
  return quoted + "\"";
}

}  // namespace strata::data
