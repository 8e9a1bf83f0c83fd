// Calls of LibTorch's operators with arguments from Lua. Internal to lua/tensors/.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/function_schema.h>
#include <c10/core/Device.h>

#include <lua.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lua/tensors/operators.h"

namespace strata::lua {

/// The stack indices of a call's arguments, by position and by name.
struct CallArguments {
  struct Named {
    std::string name;
    int index;
  };
  std::vector<int> positional;
  std::vector<Named> named;
};

/// Reads the arguments from stack index 1 to the top. A trailing table with names holds keyword
/// arguments, and may have positional ones as well: F.softmax{x, dim=1}. The table's values are
/// pushed.
CallArguments ReadArguments(lua_State* L);

/// The signature in Lua's words: "flatten(Tensor self, int start_dim=0, int end_dim=-1)".
std::string Signature(std::string_view name, const c10::FunctionSchema& schema);

/// While an object lives, operators that create tensors without taking any (F.arange{4}) create
/// them on this device, unless the script names one. In a layer's forward it is the device of the
/// layer's inputs. It applies to the calling thread; the innermost object counts.
class FactoryDevice {
 public:
  explicit FactoryDevice(c10::Device device);
  ~FactoryDevice();
  FactoryDevice(const FactoryDevice&) = delete;
  FactoryDevice& operator=(const FactoryDevice&) = delete;
  /// The current device; the CPU if no object lives.
  static c10::Device Now();

 private:
  const c10::Device before_;
};

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};
/// `tensors` are the tensors that a loss compares element by element. Throws ConfigError if
/// broadcasting would compare all pairs of their elements, such as a column with a row. That is
/// always a mistake, and PyTorch warns of it. Repeating one tensor to the shape of another is
/// allowed.
void RefuseAllPairs(std::string_view shown, std::span<const NamedTensor> tensors);

/// Calls an operator, pushes its results and returns their number. Among the overloads that take
/// these arguments it calls the one that leaves the fewest of its own arguments to their defaults.
/// `shown` is the operator's name as the script wrote it. Throws ConfigError with ATen's message,
/// or if no overload fits: with the wrong argument if there is one overload, otherwise with the
/// list of overloads. Losses are checked by RefuseAllPairs().
/// A product (matmul, conv2d, ...) of float32 and half precision is computed in half precision, as
/// autocast does; ATen alone would refuse it.
int CallOperator(lua_State* L, const Operator& op, const CallArguments& arguments,
                 std::string_view shown);

/// Pushes all arguments of the schema in its order, as given or else with their defaults, and
/// returns their number. A single number for a list of fixed length is expanded to that list.
/// Throws as CallOperator() does.
int PushFitted(lua_State* L, const c10::FunctionSchema& schema, std::string_view shown,
               const CallArguments& arguments);

}  // namespace strata::lua
