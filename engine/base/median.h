// The middle of some values.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace strata {

/// The value that `place` others are not larger than. REQUIRES: place < values.size().
template <class T>
T NthLeast(std::vector<T> values, size_t place) {
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(place);
  std::ranges::nth_element(values, at);
  return *at;
}

/// Of an even number of values the upper one of the two in the middle; T() of none.
template <class T>
T Median(std::vector<T> values) {
  const size_t middle = values.size() / 2;
  return values.empty() ? T() : NthLeast(std::move(values), middle);
}

/// The value below which that share of the others lies. Of two values half lies below the lower
/// one. REQUIRES: there are values.
inline double Quantile(std::vector<double> values, double share) {
  const auto place = static_cast<size_t>(share * static_cast<double>(values.size() - 1));
  return NthLeast(std::move(values), place);
}

}  // namespace strata
