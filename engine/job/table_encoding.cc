#include "engine/job/table_encoding.h"

#include <vector>

#include "engine/base/text.h"

namespace strata {
namespace {

constexpr const char* kFills = "fills";

}  // namespace

TableEncoding TableEncoding::FromText(const std::string& text) {
  constexpr size_t kParts = 5;
  std::vector<std::string> parts = Split(text, '|');
  const bool is_older = parts.size() < kParts;
  parts.resize(kParts);
  if (is_older) parts[3] = "";
  return {parts[0], parts[1], parts[2], parts[3], parts[4] == kFills};
}

std::string TableEncoding::ToText() const {
  return Str(words, "|", names, "|", scales, "|", means, "|", fills ? kFills : "");
}

bool HasOtherNumbers(const std::string& ours, const std::string& theirs) {
  const TableEncoding own = TableEncoding::FromText(ours), other = TableEncoding::FromText(theirs);
  const auto differ = [](const std::string& one, const std::string& another) {
    return !one.empty() && !another.empty() && one != another;
  };
  return differ(own.words, other.words) || differ(own.names, other.names) ||
         differ(own.scales, other.scales) || (other.fills && differ(own.means, other.means));
}

}  // namespace strata
