// The operators that scripts can reach, by name. Internal to lua/tensors/.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <string>
#include <string_view>
#include <vector>

namespace strata::lua {

/// All overloads of one name that Lua's values can be given to.
struct Operator {
  std::string name;                            ///< "flatten"
  std::vector<c10::OperatorHandle> overloads;  ///< those with the fewest arguments first
};

/// The operator of that exact name, or null. The first call reads the dispatcher's list (2 ms).
/// Left out are overloads for `out=` and for named dims, and what opens files or leaves the
/// tensors.
const Operator* FindOperator(std::string_view name);
/// The name that is nearest to one that nobody has, as in DidYouMean().
std::string NearestOperator(std::string_view name);
/// All names, sorted.
const std::vector<std::string>& OperatorNames();

}  // namespace strata::lua
