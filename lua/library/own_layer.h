// Layers made by the user, strata.layer{name=..., init=..., forward=...}. The functions here run
// `init`, which declares the parameters, buffers and layers. Internal to lua/.
#pragma once

#include <functional>
#include <lua.hpp>
#include <memory>
#include <string>
#include <vector>

#include "engine/layers/layer_spec.h"

namespace strata::lua {

/// One call of self:parameter{...}: {dim, dim, fill=1} or {dim, init=function(tensor) ... end}.
struct ParameterDeclaration {
  std::vector<int64_t> shape;
  double fill = 0;
  FunctionRef init;  ///< id -1 = none
};

/// Pushes the value that self:parameter{...} returns to the script.
using MakeParameter = std::function<void(lua_State*, const ParameterDeclaration&)>;

/// A value that an init made and stored in `self`. Its name is the path of fields from self;
/// elements of lists count from 0 ("weight", "heads.0").
struct OwnMember {
  enum class Kind { kParameter, kBuffer, kLayer };
  Kind kind = Kind::kParameter;
  std::string name = {};
  ParameterDeclaration declaration = {};  ///< of a parameter; of a buffer only the shape
  DType dtype = DType::kFloat32;          ///< of a buffer
  LayerSpec layer = {};                   ///< a layer, whose name is the member's
};

/// Runs the layer's init on a new `self`, pushes that, and returns the members that it made, in
/// order. `make` must push a different value each time. A layer is stored in `self` as its
/// LayerSpec. Throws ConfigError if a parameter is not stored in self, if a value is stored twice,
/// and for a layer that was made outside of init. Lua errors pass through.
std::vector<OwnMember> RunInit(lua_State* L, const LayerSpec& layer, const MakeParameter& make);

/// If an init is running, records that it made the layer at the top of the stack.
void NoteMadeLayer(lua_State* L);

/// Pushes a new `self` without parameters. In every `self`, the field `training` is true in
/// training and false in evaluation, and cannot be set.
void PushSelf(lua_State* L);

/// Runs init without allocating tensors and stores its declarations in the layer: the children,
/// whose names are their paths in self, and all parameters and buffers in PyTorch's order (the
/// layer's own first, then the children's).
void Declare(lua_State* L, LayerSpec& layer);

/// Pops the value at the top of the stack and stores it as the member `name` of the `self` at
/// `index`. Creates missing tables on the path.
void SetOwnMember(lua_State* L, int index, const std::string& name);

/// Pushes the member `name` of the `self` at `index`; nil if there is none.
void PushOwnMember(lua_State* L, int index, const std::string& name);

/// True for a loss of nn, which a script cannot call.
bool IsLoss(const LayerSpec& layer);
/// The end of an error about calling such a loss: "; F.cross_entropy(...) is the same as a
/// function".
std::string LossHint(const LayerSpec& loss);

/// `reset` of strata.layer: a function(self) that sets initial values after the whole layer is
/// built. KeepReset() stores it for the functions of a type; `reset` may be none (an id below 0).
/// It throws ConfigError if these functions have another reset already. PushReset() pushes it; if
/// there is none, it returns false and pushes nothing.
void KeepReset(lua_State* L, const FunctionRef& init, const FunctionRef& forward,
               const FunctionRef& reset);
bool PushReset(lua_State* L, const FunctionRef& init, const FunctionRef& forward);

}  // namespace strata::lua
