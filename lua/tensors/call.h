// Calling an operator with Lua's arguments. Internal to lua/tensors/.
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

/// The arguments of a call: stack indices, by position and by name.
struct CallArguments {
  struct Named {
    std::string name;
    int index;
  };
  std::vector<int> positional;
  std::vector<Named> named;
};

/// Those from stack index 1 to the top. A trailing table with names holds keyword arguments, and
/// perhaps positions before them: F.softmax{x, dim=1}. Their values are pushed.
CallArguments ReadArguments(lua_State* L);

/// "flatten(Tensor self, int start_dim=0, int end_dim=-1)", in Lua's words.
std::string Signature(std::string_view name, const c10::FunctionSchema& schema);

/// While one lives, operators that make tensors out of none (F.arange{4}) make them on this device
/// where the script names no other: in a layer's forward, on that of its inputs. Of the calling
/// thread; the innermost counts.
class FactoryDevice {
 public:
  explicit FactoryDevice(c10::Device device);
  ~FactoryDevice();
  FactoryDevice(const FactoryDevice&) = delete;
  FactoryDevice& operator=(const FactoryDevice&) = delete;
  /// The CPU where none lives.
  static c10::Device Now();

 private:
  const c10::Device before_;
};

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};
/// Throws ConfigError where a loss, which takes these tensors element by element, would compare all
/// pairs of their elements: a column against a row. Nobody means that, and PyTorch warns of it. A
/// tensor that is repeated to the shape of another one is no such case.
void RefuseAllPairs(std::string_view shown, std::span<const NamedTensor> tensors);

/// Calls an operator, pushes its results and gives their number. Of the overloads that take these
/// arguments it calls the one that leaves the fewest of its own to their defaults. `shown` is the
/// operator's name as the script wrote it. Throws ConfigError with what ATen says, or where no
/// overload fits: with the argument at fault of a single one, with the list of several. Losses
/// refuse as RefuseAllPairs() says.
/// A product (matmul, conv2d, ...) of float32 and half precision is computed in the latter, which
/// autocast would do and ATen refuses.
int CallOperator(lua_State* L, const Operator& op, const CallArguments& arguments,
                 std::string_view shown);

/// Pushes all arguments of the schema in its order, as they were given or else their defaults, and
/// gives their number. One number that stands for a list of fixed length becomes that list. Throws
/// as CallOperator().
int PushFitted(lua_State* L, const c10::FunctionSchema& schema, std::string_view shown,
               const CallArguments& arguments);

}  // namespace strata::lua
