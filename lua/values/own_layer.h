// A user's own layer, strata.layer{name=..., init=..., forward=...}: the running of `init`, which
// says what parameters there are. Internal to lua/.
#pragma once

#include <functional>
#include <lua.hpp>
#include <memory>
#include <vector>

#include "engine/spec/layers/layer_spec.h"

namespace strata::lua {

/// One self:parameter{...}: {dim, dim, fill=1} or {dim, init=function(tensor) ... end}.
struct ParameterDeclaration {
  std::vector<int64_t> shape;
  double fill = 0;
  FunctionRef init;  ///< id -1 = none
};

/// Pushes what self:parameter{...} gives to the script.
using MakeParameter = std::function<void(lua_State*, const ParameterDeclaration&)>;

/// A parameter of a `self`: its name is the path of fields from self, lists counting from 0
/// ("weight", "heads.0.weight").
struct OwnParameter {
  std::string name;
  ParameterDeclaration declaration;
};

/// Runs the layer's init on a new `self` and pushes that; gives the parameters in the order in
/// which they were made. `make` must push a different value each time. Throws ConfigError for a
/// parameter that is not kept in self, or kept twice. Calls Lua unprotected.
std::vector<OwnParameter> RunInit(lua_State* L, const LayerSpec& layer, const MakeParameter& make);

/// Pushes a new `self` without parameters. Of every `self`, the field `training` says whether the
/// layer trains, and cannot be set.
void PushSelf(lua_State* L);

/// Runs init without allocating: what its parameters are.
std::vector<ParameterSpec> DeclaredParameters(lua_State* L, const LayerSpec& layer);

/// Makes the value at the top of the stack, which it takes away, the parameter of that name in the
/// `self` at `index`. Makes the tables on the way to it where they are missing.
void SetOwnParameter(lua_State* L, int index, const std::string& name);

}  // namespace strata::lua
