// A user's own layer, strata.layer{name=..., init=..., forward=...}: the running of `init`, which
// says what parameters, buffers and layers there are. Internal to lua/.
#pragma once

#include <functional>
#include <lua.hpp>
#include <memory>
#include <string>
#include <vector>

#include "engine/layers/layer_spec.h"

namespace strata::lua {

/// One self:parameter{...}: {dim, dim, fill=1} or {dim, init=function(tensor) ... end}.
struct ParameterDeclaration {
  std::vector<int64_t> shape;
  double fill = 0;
  FunctionRef init;  ///< id -1 = none
};

/// Pushes what self:parameter{...} gives to the script.
using MakeParameter = std::function<void(lua_State*, const ParameterDeclaration&)>;

/// What an init made and keeps in `self`. Its name is the path of fields from self, lists counting
/// from 0 ("weight", "heads.0").
struct OwnMember {
  enum class Kind { kParameter, kBuffer, kLayer };
  Kind kind = Kind::kParameter;
  std::string name = {};
  ParameterDeclaration declaration = {};  ///< a parameter; of a buffer the shape
  DType dtype = DType::kFloat32;          ///< a buffer's
  LayerSpec layer = {};                   ///< a layer; its name is the member's
};

/// Runs the layer's init on a new `self` and pushes that; gives what it made, in that order. `make`
/// must push a different value each time. A layer stands in `self` as its LayerSpec. Throws
/// ConfigError for a parameter that is not kept in self, for what is kept twice, and for a layer
/// that was made elsewhere. Calls Lua unprotected.
std::vector<OwnMember> RunInit(lua_State* L, const LayerSpec& layer, const MakeParameter& make);

/// Tells the init that runs, if there is one, that it made the layer at the top of the stack.
void NoteMadeLayer(lua_State* L);

/// Pushes a new `self` without parameters. Of every `self`, the field `training` says whether the
/// layer trains, and cannot be set.
void PushSelf(lua_State* L);

/// Runs init without allocating, and completes the layer with what it declares: its children, whose
/// names are their paths in self, and all parameters and buffers in PyTorch's order (its own, then
/// the children's).
void Declare(lua_State* L, LayerSpec& layer);

/// Makes the value at the top of the stack, which it takes away, the member of that name in the
/// `self` at `index`. Makes the tables on the way to it where they are missing.
void SetOwnMember(lua_State* L, int index, const std::string& name);

/// Pushes the member of that name in the `self` at `index`; nil where there is none.
void PushOwnMember(lua_State* L, int index, const std::string& name);

/// Whether it is a loss of nn, which a script cannot call.
bool IsLoss(const LayerSpec& layer);
/// Ends messages about such a loss: "; F.cross_entropy(...) is the same as a function".
std::string LossHint(const LayerSpec& loss);

/// strata.layer's `reset`, which goes with the `init`: a function(self) that sets initial values
/// once all is built. PushReset() pushes nothing, and gives false, where there is none.
void KeepReset(lua_State* L, const FunctionRef& init, const FunctionRef& reset);
bool PushReset(lua_State* L, const FunctionRef& init);

}  // namespace strata::lua
