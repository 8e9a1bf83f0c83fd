// torch.nn.functional's functions that are no operators of the same name and order. Internal to
// lua/tensors/.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace strata::lua {

/// One function of torch.nn.functional by way of an operator.
struct Functional {
  std::string_view name;           ///< "cross_entropy"
  std::string_view operator_name;  ///< "cross_entropy_loss"
  /// Its parameters in order, each with the operator's name for it: "p" or "running_mean".
  std::vector<std::string_view> parameters;
};

/// The function of that exact name, or null.
const Functional* FindFunctional(std::string_view name);
/// All names, in the table's order.
std::vector<std::string> FunctionalNames();

}  // namespace strata::lua
