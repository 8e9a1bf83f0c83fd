// Expands Slurm's compact lists of host names and of counts (ExpandHostList() and ExpandCounts() of
// discovery.h). Limits on the number and length of names keep a short text from expanding to
// gigabytes.
#include <algorithm>
#include <iterator>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/comm/meeting/discovery.h"

namespace strata {
namespace {

constexpr size_t kMostHosts = 65'536;
constexpr int kMostBrackets = 8;      // in one name; each bracket multiplies the number of names
constexpr size_t kLongestName = 255;  // of a host name, in bytes (RFC 1035)

[[noreturn]] void Refuse(std::string_view list, const std::string& why) {
  throw ConfigError(Str("\"", list, "\" is no list of hosts such as node[01-03,7],login: ", why));
}

/// "01-03" -> 01 02 03; "7" -> 7. The numbers are as wide as the first one, with leading zeros.
std::vector<std::string> ExpandRange(std::string_view list, std::string_view range) {
  const size_t dash = range.find('-');
  const std::string_view first = range.substr(0, dash);
  const std::string_view last = dash == range.npos ? first : range.substr(dash + 1);
  const std::optional<int> begin = ParseWhole(first), end = ParseWhole(last);
  if (!begin || !end || *end < *begin) Refuse(list, Str("\"", range, "\" is no range"));
  if (static_cast<size_t>(*end - *begin) >= kMostHosts) Refuse(list, "too many hosts");
  if (first.size() > kLongestName) Refuse(list, "a name is too long");
  std::vector<std::string> numbers;
  for (int64_t number = *begin; number <= *end; ++number) {
    const std::string digits = std::to_string(number);
    const size_t padding = first.size() > digits.size() ? first.size() - digits.size() : 0;
    numbers.push_back(std::string(padding, '0') + digits);
  }
  return numbers;
}

/// Joins each beginning with each end; the ends vary fastest.
std::vector<std::string> Product(std::string_view list, const std::vector<std::string>& beginnings,
                                 const std::vector<std::string>& ends) {
  if (beginnings.size() * ends.size() > kMostHosts) Refuse(list, "too many hosts");
  if (!beginnings.empty() && !ends.empty() &&
      beginnings.back().size() + ends.back().size() > kLongestName) {
    Refuse(list, "a name is too long");
  }
  std::vector<std::string> all;
  for (const std::string& beginning : beginnings) {
    for (const std::string& end : ends) all.push_back(beginning + end);
  }
  return all;
}

/// Expands one name with brackets into all its names.
std::vector<std::string> ExpandName(std::string_view list, std::string_view name) {
  if (name.empty()) Refuse(list, "a name is empty");
  if (std::ranges::count(name, '[') > kMostBrackets) Refuse(list, "a name has too many brackets");
  std::vector<std::string> names = {""};
  while (!name.empty()) {
    const size_t open = name.find('[');
    names = Product(list, names, {std::string(name.substr(0, open))});
    if (open == name.npos) break;
    const size_t close = name.find(']', open);
    if (close == name.npos) Refuse(list, "a bracket is not closed");
    std::vector<std::string> numbers;
    for (const std::string& range : Split(name.substr(open + 1, close - open - 1), ',')) {
      std::vector<std::string> some = ExpandRange(list, range);
      numbers.insert(numbers.end(), std::make_move_iterator(some.begin()),
                     std::make_move_iterator(some.end()));
      if (numbers.size() > kMostHosts) Refuse(list, "too many hosts");
    }
    names = Product(list, names, numbers);
    name.remove_prefix(close + 1);
  }
  for (const std::string& host : names) {
    if (host.find_first_of("[] ") != host.npos) Refuse(list, Str("\"", host, "\" is no name"));
  }
  return names;
}

/// Splits `list` at its commas, but not at commas inside brackets.
std::vector<std::string_view> SplitOutside(std::string_view list) {
  std::vector<std::string_view> pieces;
  size_t start = 0;
  int depth = 0;
  for (size_t i = 0; i <= list.size(); ++i) {
    if (i < list.size() && list[i] == '[') ++depth;
    if (i < list.size() && list[i] == ']') --depth;
    if (i < list.size() && (list[i] != ',' || depth > 0)) continue;
    pieces.push_back(list.substr(start, i - start));
    start = i + 1;
  }
  return pieces;
}

}  // namespace

std::vector<std::string> ExpandHostList(std::string_view list) {
  std::vector<std::string> hosts;
  for (std::string_view name : SplitOutside(list)) {
    for (std::string& host : ExpandName(list, name)) hosts.push_back(std::move(host));
    if (hosts.size() > kMostHosts) Refuse(list, "too many hosts");
  }
  return hosts;
}

std::vector<int> ExpandCounts(std::string_view counts) {
  std::vector<int> expanded;
  for (const std::string& piece : Split(counts, ',')) {
    const size_t open = piece.find("(x");
    const bool repeated = open != piece.npos && piece.back() == ')';
    const std::string_view text = piece;
    const std::optional<int> count = ParseWhole(text.substr(0, open));
    const std::optional<int> times =
        repeated ? ParseWhole(text.substr(open + 2, text.size() - open - 3)) : 1;
    if (!count || !times || (open != piece.npos && !repeated) ||
        expanded.size() + static_cast<size_t>(*times) > kMostHosts) {
      throw ConfigError(Str("\"", counts, "\" is no list of counts such as 2(x3),1"));
    }
    expanded.insert(expanded.end(), static_cast<size_t>(*times), *count);
  }
  return expanded;
}

}  // namespace strata
