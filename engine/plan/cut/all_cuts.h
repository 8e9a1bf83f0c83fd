// All cuts of a list, for lists that are short enough.
#pragma once

#include <functional>
#include <vector>

namespace strata::partition {

/// In how many ways so many layers can be cut, or `most` where there are more.
double CountCuts(int layers, int stages, double most);

/// Calls `visit` with the bounds of every cut. REQUIRES: 1 <= stages <= layers.
void ForEachCut(int layers, int stages, const std::function<void(const std::vector<int>&)>& visit);

}  // namespace strata::partition
