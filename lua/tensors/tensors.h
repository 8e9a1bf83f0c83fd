// Tensors as values of Lua, every public ATen operator as a function on them, and
// torch.nn.functional. Part of the engine's shared library. Internal to lua/.
//
//   F.<operator>(...), tensor:<operator>(...)   any operator of the dispatcher; the overload whose
//                                               schema takes the arguments is called
//   x + y, -x, #x, x == y                       arithmetic; dim 0; torch.equal
//   x[i], x[{0, {2, 5}}], x[mask] = v           elements (index.h)
//   x:item() x:tolist() x:to("float32")         x.shape x.dtype x.device x.grad x.requires_grad
//   F.tensor{{1, 2}, {3, 4}}                    from numbers: int64 where all are whole
//   strata.no_grad(f, ...)                      f without gradients
//
// Arguments: nil is None, a whole number an integer, a list a list (of integers, numbers, booleans
// or tensors), a string a dtype, layout, device or what the schema says. A trailing table with
// names holds keyword arguments. Several numbers at the end may stand for a list: x:view(4, 3).
#pragma once

#include <ATen/core/Tensor.h>

#include <lua.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace strata::lua {

/// Fills strata.F, adds strata.no_grad, and makes the type. Once per state. REQUIRES: protected
/// mode.
void OpenTensors(lua_State* L);

/// Lua collects garbage at the latest when it was given tensors of so many bytes.
inline constexpr int64_t kMostBetweenCollections = 8 << 20;
/// Collects if so much was handed out, `more` bytes that come now included.
void CollectIfDue(lua_State* L, int64_t more = 0);

void PushTensor(lua_State* L, at::Tensor tensor);
/// One tensor as itself, several or none as a list.
void PushTensors(lua_State* L, const std::vector<at::Tensor>& tensors);
/// The tensor at `index`, or null when it is something else; lives as long as it is on the stack.
const at::Tensor* TensorAt(lua_State* L, int index);
/// The same; throws ConfigError "expected WHAT, got ...".
const at::Tensor& TensorArgument(lua_State* L, int index, std::string_view what);
/// A tensor or a list of tensors. Throws ConfigError "expected WHAT, got ..." for anything else.
std::vector<at::Tensor> TensorsArgument(lua_State* L, int index, std::string_view what);

/// The error of TensorArgument(), for those who take more than tensors.
[[noreturn]] void ThrowNoTensor(lua_State* L, int index, std::string_view what);
/// For messages: " (what compares elements)" where a boolean stands at `index`, else "".
std::string BooleanHint(lua_State* L, int index);
/// Reading a tensor's member of the list of tensors at the top of the stack is an error from now
/// on.
void WatchTensors(lua_State* L);

/// "float32 (2, 3)": for messages.
std::string DescribeTensor(const at::Tensor& tensor);

/// What a c10::Error says, without its back-trace and C++ places, on at most a few lines.
std::string ErrorText(const std::exception& error);

}  // namespace strata::lua
