// Medians and quantiles.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace strata {

/// The value that would be at index `place` if the values were sorted. REQUIRES: place <
/// values.size().
template <class T>
T NthLeast(std::vector<T> values, size_t place) {
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(place);
  std::ranges::nth_element(values, at);
  return *at;
}

/// The middle one of the sorted values; the upper of the two middle ones if their number is even.
/// T() if there are no values.
template <class T>
T Median(std::vector<T> values) {
  const size_t middle = values.size() / 2;
  return values.empty() ? T() : NthLeast(std::move(values), middle);
}

/// The value at `share` of the way from the least (0) to the largest (1) of the sorted values. The
/// index is rounded down, so Quantile(two values, 0.5) is the lower one. REQUIRES: `values` is not
/// empty.
inline double Quantile(std::vector<double> values, double share) {
  const auto place = static_cast<size_t>(share * static_cast<double>(values.size() - 1));
  return NthLeast(std::move(values), place);
}

}  // namespace strata
