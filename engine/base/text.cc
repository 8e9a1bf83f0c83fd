#include "engine/base/text.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <utility>

#include "engine/base/check.h"

namespace strata {
namespace {

char Fold(char c) {
  if (c == '-') return '_';
  return static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
}

/// The printf format that shows `value` with three significant digits, then a unit.
const char* ThreeDigits(double value) {
  return value < 9.995 ? "%.2f %s" : value < 99.95 ? "%.1f %s" : "%.0f %s";
}

bool LooksNumeric(const std::string& cell) {
  return std::all_of(cell.begin(), cell.end(), [](char c) {
    return std::isdigit(static_cast<unsigned char>(c)) || c == ',' || c == '.' || c == '%' ||
           c == '-';
  });
}

bool HasPrefix(std::string_view text, std::string_view prefix) {
  return prefix.size() >= 2 && text.size() >= prefix.size() &&
         std::equal(prefix.begin(), prefix.end(), text.begin(),
                    [](char a, char b) { return Fold(a) == Fold(b); });
}

}  // namespace

std::string Printf(const char* format, ...) {
  std::array<char, 512> buffer;  // long enough for any double
  std::va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(buffer.data(), buffer.size(), format, arguments);
  va_end(arguments);
  return buffer.data();
}

std::vector<std::string> Split(std::string_view text, char separator) {
  std::vector<std::string> pieces;
  size_t start = 0;
  while (true) {
    size_t end = text.find(separator, start);
    pieces.emplace_back(text.substr(start, end - start));
    if (end == std::string_view::npos) return pieces;
    start = end + 1;
  }
}

std::string_view Trim(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n\v\f";
  size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

std::string Lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

/// Dynamic programming: row[j] is the distance between the first i letters of `a` and the first j
/// of `b`. A swap of neighbours needs the row before the previous one. The cost is O(|a| |b|).
int EditDistance(std::string_view a, std::string_view b) {
  std::vector<int> before_previous, previous(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) previous[j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const bool same = Fold(a[i - 1]) == Fold(b[j - 1]);
      row[j] = std::min({previous[j] + 1, row[j - 1] + 1, previous[j - 1] + (same ? 0 : 1)});
      const bool swapped =
          i > 1 && j > 1 && Fold(a[i - 1]) == Fold(b[j - 2]) && Fold(a[i - 2]) == Fold(b[j - 1]);
      if (swapped) row[j] = std::min(row[j], before_previous[j - 2] + 1);
    }
    before_previous = previous;
    previous.swap(row);
  }
  return previous[b.size()];
}

std::string Nearest(std::string_view name, std::span<const std::string> candidates) {
  std::string best;
  std::pair<int, bool> best_rank;
  for (const std::string& candidate : candidates) {
    const int longer = static_cast<int>(std::max(name.size(), candidate.size()));
    const bool begins = HasPrefix(candidate, name);
    int distance = EditDistance(name, candidate);
    if (begins) distance = std::min(distance, 1);
    if (name.size() < 2 && distance > 0) continue;  // one letter is too little
    if (distance > std::clamp(longer / 3, 1, 4) || distance >= longer) continue;
    const std::pair<int, bool> rank(distance, !begins);
    if (best.empty() || rank < best_rank) {
      best = candidate;
      best_rank = rank;
    }
  }
  return best;
}

std::string DidYouMean(std::string_view name, std::span<const std::string> candidates,
                       size_t list_at_most) {
  const std::string nearest = Nearest(name, candidates);
  if (!nearest.empty()) return Str("; did you mean \"", nearest, "\"?");
  if (candidates.empty() || candidates.size() > list_at_most) return "";
  return Str("; it is one of ", Join(candidates, ", "));
}

std::string FormatCount(int64_t n) {
  std::string digits = std::to_string(n);
  const int first = n < 0 ? 1 : 0;
  for (int i = static_cast<int>(digits.size()) - 3; i > first; i -= 3) {
    digits.insert(static_cast<size_t>(i), ",");
  }
  return digits;
}

std::string FormatBytes(double bytes) {
  constexpr std::array<const char*, 6> kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  if (bytes < 1023.5) return Printf("%.0f %s", bytes, kUnits[0]);
  size_t unit = 0;
  while (bytes >= 999.5 && unit + 1 < kUnits.size()) {
    bytes /= 1024;
    ++unit;
  }
  return Printf(ThreeDigits(bytes), bytes, kUnits[unit]);
}

std::string FormatSeconds(double seconds) {
  if (!std::isfinite(seconds)) return FormatDouble(seconds) + " s";
  if (seconds < 999.5e-6) return Printf("%.0f %s", seconds * 1e6, "us");
  if (seconds < 0.9995) return Printf(ThreeDigits(seconds * 1e3), seconds * 1e3, "ms");
  if (seconds < 59.95) return Printf(ThreeDigits(seconds), seconds, "s");
  const auto of = [&](int64_t unit) { return std::llround(seconds / static_cast<double>(unit)); };
  constexpr int64_t kMinute = 60, kHour = 60 * kMinute, kDay = 24 * kHour;
  if (of(1) < kHour) return Printf("%lld min %02lld s", of(1) / 60, of(1) % 60);
  if (of(kMinute) < 2 * kDay / kMinute) {
    return Printf("%lld h %02lld min", of(kMinute) / 60, of(kMinute) % 60);
  }
  return Printf("%lld d %02lld h", of(kHour) / 24, of(kHour) % 24);
}

std::string FormatDouble(double value) {
  std::array<char, 64> buffer;
  const auto result = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  return std::string(buffer.data(), result.ptr);
}

std::string FormatShape(std::span<const int64_t> shape) {
  return Str("(", Join(shape, ", "), shape.size() == 1 ? ",)" : ")");
}

std::string Plural(int64_t n, std::string_view noun) {
  const bool hisses = noun.ends_with("ch") || noun.ends_with("ss");
  return Str(FormatCount(n), " ", noun, n == 1 ? "" : hisses ? "es" : "s");
}

void TextTable::Add(std::vector<std::string> row) {
  STRATA_CHECK(row.size() == header_.size()) << row.size() << " cells for " << header_.size();
  rows_.push_back(std::move(row));
}

std::string TextTable::Render() const {
  std::vector<size_t> width(header_.size());
  std::vector<bool> numeric(header_.size(), true);
  for (size_t c = 0; c < header_.size(); ++c) {
    width[c] = header_[c].size();
    for (const auto& row : rows_) {
      width[c] = std::max(width[c], row[c].size());
      numeric[c] = numeric[c] && LooksNumeric(row[c]);
    }
  }
  std::string text;
  const auto add_line = [&](const std::vector<std::string>& cells) {
    std::string line;
    for (size_t c = 0; c < cells.size(); ++c) {
      const std::string padding(width[c] - cells[c].size(), ' ');
      if (c > 0) line += "  ";
      line += numeric[c] ? padding + cells[c] : cells[c] + padding;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  };
  add_line(header_);
  for (const auto& row : rows_) add_line(row);
  return text;
}

}  // namespace strata
