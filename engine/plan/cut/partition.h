// Partition: cuts a list of weighted items into contiguous parts. It works on numbers only; cut.h
// applies it to layers.
//
// A cut of n items into k parts is given by its k + 1 bounds: part p holds the items from bounds[p]
// up to, but not including, bounds[p + 1]. {0, 19, 22} cuts 22 items into 19 and 3.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/base/value.h"

namespace strata::partition {

using Bounds = std::vector<int>;

/// The largest number of items, and of parts, that is accepted.
inline constexpr int64_t kMaxItems = int64_t{1} << 20;

/// Cuts into parts of equal length, the first n mod k of them one longer: 10 items in 4 parts give
/// {0, 3, 6, 8, 10}. With more parts than items each item is a part and the last parts are empty: 3
/// items in 5 parts give {0, 1, 2, 3, 3, 3}. Throws ConfigError unless 0 <= items <= kMaxItems and
/// 1 <= parts <= kMaxItems.
Bounds Uniform(int64_t items, int64_t parts);

enum class Compat {
  kNone,
  /// DeepSpeed's partition_balanced (version 0.19), bit for bit. It minimises the spread between
  /// the heaviest and the lightest part with a table that keeps only one best prefix, so its
  /// slowest part may be some 20 % above the least possible one. It uses double arithmetic. Time
  /// O(items^2 * parts).
  kDeepSpeed,
};

/// Finds the best cut of weighted items into parts; the weight of a part is the sum of its items'
/// weights. Among the cuts without an empty part it takes
///  1. those whose heaviest part is the least possible;
///  2. among them, those with the least sum of the squares of the parts' weights;
///  3. among them, the one whose bounds are the latest, compared from the first.
/// With more parts than items it is Uniform().
///
/// The result is exact: sums and squares are computed in integers of 127 and 254 bits (63 and 126
/// if the sum of all weights fits). That is enough for any int64 weights. It is enough for doubles
/// unless some bit lies more than 127 places below the first bit of their sum; such bits are
/// dropped.
///
/// Time O(parts * window * log(window)), memory 4 * parts * window bytes, where window <= items -
/// parts + 1 is the largest number of places that a bound can take without making the heaviest part
/// heavier. Method: binary search over greedy cuts finds the least heaviest part; then dynamic
/// programming over the suffixes, each row by divide and conquer, since its latest best bounds
/// ascend (the cost is a Monge array: Galil and Park, Dynamic programming with convexity, concavity
/// and sparsity, 1992).
///
/// Throws ConfigError for a weight that is negative, not-a-number or infinity (the item is named),
/// for a number of items or parts outside the limits of Uniform(), for a case whose tables would
/// exceed 1 GiB, and for one that would take kDeepSpeed more than 10^10 steps.
Bounds Balanced(std::span<const int64_t> weights, int64_t parts, Compat compat = Compat::kNone);
Bounds Balanced(std::span<const double> weights, int64_t parts, Compat compat = Compat::kNone);

/// Does the same for weights from a script: a list of numbers, which are taken as integers if all
/// are whole. Also throws ConfigError if an entry is not a number.
Bounds Balanced(const Value& weights, int64_t parts, Compat compat = Compat::kNone);

}  // namespace strata::partition
