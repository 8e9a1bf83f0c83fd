// The operators that scripts can call, by name. Internal to lua/tensors/.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <string>
#include <string_view>
#include <vector>

namespace strata::lua {

/// All overloads of one name whose arguments can be given from Lua.
struct Operator {
  std::string name;                            ///< "flatten"
  std::vector<c10::OperatorHandle> overloads;  ///< those with the fewest arguments first
};

/// The operator with exactly this name, or null. The first call reads the dispatcher's list (2 ms).
/// Some operators are left out: overloads for `out=` and for named dims, operators that open files
/// or use memory other than their tensors', and LibTorch's internal operators ("_...",
/// "..._backward"), which do not check their arguments.
const Operator* FindOperator(std::string_view name);
/// As FindOperator(), but includes the internal operators, for the bodies of functional.lua.
const Operator* FindAnyOperator(std::string_view name);
/// The error for a name that is not an operator for scripts: the reason, and what to use instead.
std::string WhyNoOperator(std::string_view name);
/// The names of all operators that scripts can call, sorted.
const std::vector<std::string>& OperatorNames();

}  // namespace strata::lua
