// Tensors as Lua values, every public ATen operator as a function on them, and torch.nn.functional.
// Part of the engine's shared library. Internal to lua/.
//
//   F.<operator>(...), tensor:<operator>(...)   any operator of the dispatcher; the overload whose
//                                               schema takes the arguments is called
//   x + y, -x, #x, x == y                       arithmetic; dim 0; torch.equal
//   x[i], x[{0, {2, 5}}], x[mask] = v           elements (index.h)
//   x:item() x:tolist() x:to("float32")         x.shape x.dtype x.device x.grad x.requires_grad
//   F.tensor{{1, 2}, {3, 4}}                    from numbers: int64 where all are whole
//   strata.no_grad(f, ...)                      f without gradients
//
// Arguments are converted from Lua: nil to None, a whole number to an integer, a list to a list (of
// integers, numbers, booleans or tensors), a string to a dtype, layout, device or what the schema
// says. A trailing table with names holds keyword arguments. Several numbers at the end may stand
// for a list: x:view(4, 3).
#pragma once

#include <ATen/core/Tensor.h>

#include <lua.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace strata::lua {

/// Fills strata.F, adds strata.no_grad, and makes the type of tensors. Call it once per state.
/// REQUIRES: protected mode.
void OpenTensors(lua_State* L);

/// Lua collects garbage at the latest after tensors with this many bytes were pushed.
inline constexpr int64_t kMostBetweenCollections = 8 << 20;
/// Collects garbage if that many bytes were pushed since the last collection; `more` bytes, about
/// to be pushed, are included.
void CollectIfDue(lua_State* L, int64_t more = 0);

void PushTensor(lua_State* L, at::Tensor tensor);
/// Pushes one tensor as itself, and several or none as a list.
void PushTensors(lua_State* L, const std::vector<at::Tensor>& tensors);
/// The tensor at `index`, or null if the value has another type. It lives as long as it is on the
/// stack.
const at::Tensor* TensorAt(lua_State* L, int index);
/// The tensor at `index`; throws ConfigError "expected WHAT, got ..." for another type.
const at::Tensor& TensorArgument(lua_State* L, int index, std::string_view what);
/// The tensors given by a tensor or a list of tensors. Throws ConfigError "expected WHAT, got ..."
/// for anything else.
std::vector<at::Tensor> TensorsArgument(lua_State* L, int index, std::string_view what);

/// Throws the error of TensorArgument(); for code that takes other types too.
[[noreturn]] void ThrowNoTensor(lua_State* L, int index, std::string_view what);
/// For messages: " (what compares elements)" if a boolean is at `index`, otherwise "".
std::string BooleanHint(lua_State* L, int index);
/// From now on, reading a tensor's member, such as q.shape, from the list of tensors at the top of
/// the stack is an error.
void WatchTensors(lua_State* L);

/// The dtype and shape for messages: "float32 (2, 3)".
std::string DescribeTensor(const at::Tensor& tensor);

/// The message of a c10::Error, without back-trace and C++ places, on at most a few lines.
std::string ErrorText(const std::exception& error);

}  // namespace strata::lua
