// Enumerates all cuts of a list of layers, for lists that are short enough.
#pragma once

#include <functional>
#include <vector>

namespace strata::partition {

/// The number of ways to cut `layers` layers into `stages` non-empty stages; `most` if there are
/// more.
double CountCuts(int layers, int stages, double most);

/// Calls `visit` with the bounds of every cut. REQUIRES: 1 <= stages <= layers.
void ForEachCut(int layers, int stages, const std::function<void(const std::vector<int>&)>& visit);

}  // namespace strata::partition
