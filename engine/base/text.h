// Text helpers for all packages: joining and splitting, numbers formatted for people, the nearest
// name for a misspelt one, tables.
#pragma once

#include <charconv>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace strata {

/// Streams all arguments into one string: `Str("stage ", 2, " of ", n)`.
template <class... Args>
std::string Str(const Args&... args) {
  std::ostringstream out;
  (out << ... << args);
  return out.str();
}

/// The elements of a range, streamed, with `separator` between them: `Join(std::array{1, 2}, ",
/// ")`.
template <class Range>
std::string Join(const Range& range, std::string_view separator) {
  std::ostringstream out;
  bool first = true;
  for (const auto& element : range) {
    if (!first) out << separator;
    out << element;
    first = false;
  }
  return out.str();
}

/// The text that std::printf() would write, cut after 511 characters.
[[gnu::format(printf, 1, 2)]] std::string Printf(const char* format, ...);

/// The pieces of `text` between the separators: ("a,,b", ',') -> "a" "" "b". An empty text gives
/// one empty piece.
std::vector<std::string> Split(std::string_view text, char separator);

/// `text` without white space at both ends.
std::string_view Trim(std::string_view text);

/// The number that `text` is, in digits alone, if it is from `least` to `most`; none for any other
/// text.
template <class T = int>
std::optional<T> ParseWhole(std::string_view text, T least = 0,
                            T most = std::numeric_limits<T>::max()) {
  T number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_whole = error == std::errc() && end == text.data() + text.size() && text[0] != '-';
  return is_whole && number >= least && number <= most ? std::optional(number) : std::nullopt;
}

/// `text` in ASCII lower case.
std::string Lower(std::string_view text);

/// The smallest number of insertions, deletions, substitutions and swaps of neighbours that turn
/// `a` into `b` (optimal string alignment). ASCII case is ignored, and '-' equals '_'.
int EditDistance(std::string_view a, std::string_view b);

/// The candidate with the smallest EditDistance() to `name`; among equals one that starts with
/// `name`, else the first. Returns "" if none is near: the distance may be at most a third of the
/// longer name's length, with this limit at least 1 and at most 4, and must be less than the whole
/// length. A candidate that starts with `name` has distance 1, if `name` has at least two letters.
std::string Nearest(std::string_view name, std::span<const std::string> candidates);

/// The end of an error message: `; did you mean "pipe"?` with the nearest candidate. If none is
/// near and there are at most `list_at_most` candidates: `; it is one of a, b, c`. Otherwise "".
std::string DidYouMean(std::string_view name, std::span<const std::string> candidates,
                       size_t list_at_most = 12);

/// 57044810 -> "57,044,810".
std::string FormatCount(int64_t n);
/// Bytes for people, in binary units with three significant digits: "512 B", "1.50 KiB", "228 MiB".
std::string FormatBytes(double bytes);
/// Seconds for people: "85 us", "12.3 ms", "4.56 s", "2 min 05 s", "28 h 13 min", "3 d 04 h".
std::string FormatSeconds(double seconds);
/// The shortest decimal text that reads back as the same double: 0.1 -> "0.1", 3 -> "3".
std::string FormatDouble(double value);
/// "(8, 3, 224, 224)"; one dim: "(8,)"; none: "()".
std::string FormatShape(std::span<const int64_t> shape);
/// A number with its noun, in the plural if needed: (1, "layer") -> "1 layer", (3, "layer") -> "3
/// layers".
std::string Plural(int64_t n, std::string_view noun);

/// A text table with a header. Columns are as wide as their widest cell, with two spaces between
/// them. A column is aligned to the right when all its cells are numbers (made of digits, ',', '.',
/// '%' and '-').
class TextTable {
 public:
  explicit TextTable(std::vector<std::string> header) : header_(std::move(header)) {}
  /// REQUIRES: as many cells as the header has.
  void Add(std::vector<std::string> row);
  /// All lines, each ending in a newline, without trailing spaces.
  std::string Render() const;

 private:
  std::vector<std::string> header_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace strata
