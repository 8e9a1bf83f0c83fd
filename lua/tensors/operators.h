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
/// Left out are overloads for `out=` and for named dims, what opens files or leaves the tensors,
/// and LibTorch's internal operators, which trust what they are given: "_...", "..._backward".
const Operator* FindOperator(std::string_view name);
/// The same with the internal ones, for the bodies of functional.lua.
const Operator* FindAnyOperator(std::string_view name);
/// What is said of a name that scripts have no operator for: why, and what to use.
std::string WhyNoOperator(std::string_view name);
/// All names that scripts have, sorted.
const std::vector<std::string>& OperatorNames();

}  // namespace strata::lua
