#include "engine/plan/cut/spread.h"

#include <algorithm>
#include <limits>

namespace strata::partition {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// For each i, the cut of the first i items that is kept. All have the same number of parts.
struct Column {
  explicit Column(size_t size)
      : heaviest(size, kInfinity), lightest(size, kInfinity), spread(size, kInfinity), cut(size) {}

  std::vector<double> heaviest;
  std::vector<double> lightest;
  std::vector<double> spread;
  std::vector<int> cut;  ///< the item at which its last part begins
};

/// Appends a last part to the cuts of `fewer` in every way, and keeps the best one for the first i
/// items.
void Extend(const std::vector<double>& prefix, const Column& fewer, size_t i, Column& column) {
  for (size_t k = 0; k < i; ++k) {
    const double part = prefix[i] - prefix[k];
    const double heaviest = std::max(fewer.heaviest[k], part);
    const double lightest = std::min(fewer.lightest[k], part);
    const double spread = heaviest - lightest;
    if (!(column.spread[i] >= spread)) continue;
    column.spread[i] = spread;
    column.heaviest[i] = heaviest;
    column.lightest[i] = lightest;
    column.cut[i] = static_cast<int>(k);
  }
}

}  // namespace

std::vector<int> LeastSpread(const std::vector<double>& prefix, int parts) {
  std::vector<Column> columns(static_cast<size_t>(parts) + 1, Column(prefix.size()));
  columns[0].heaviest[0] = 0;
  columns[0].spread[0] = 0;
  for (size_t j = 1; j < columns.size(); ++j) {
    for (size_t i = j; i < prefix.size(); ++i) Extend(prefix, columns[j - 1], i, columns[j]);
  }
  std::vector<int> bounds(columns.size());
  bounds.back() = static_cast<int>(prefix.size()) - 1;
  for (size_t j = columns.size() - 1; j > 0; --j) {
    bounds[j - 1] = columns[j].cut[bounds[j]];
  }
  return bounds;
}

}  // namespace strata::partition
