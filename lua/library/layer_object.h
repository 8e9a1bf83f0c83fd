// Layers as values of Lua, and lists of them. Internal to lua/.
#pragma once

#include <lua.hpp>
#include <string>
#include <vector>

#include "engine/job/build_job.h"
#include "engine/layers/layer_spec.h"
#include "engine/layers/layer_types.h"
#include "lua/core/object.h"

namespace strata::lua {

/// nn.Linear: a type of layer, before it is called.
struct LayerConstructor {
  std::string name;                 ///< "nn.Linear", "RMS"
  const LayerType* type = nullptr;  ///< of nn's; null for a user's own
  FunctionRef init, forward;        ///< a user's own; `init` may be missing (id -1)
};

/// The mark that strata.cut() puts into a list.
struct CutMark {};

template <>
struct TypeOf<LayerSpec> {
  static const ObjectType& Get();
};
template <>
struct TypeOf<LayerConstructor> {
  static const ObjectType& Get();
};
template <>
struct TypeOf<CutMark> {
  static const ObjectType& Get();
};

/// The layers that the value at `index` stands for: a layer, a function, a mark, or a list of such.
/// `what` names it in errors: "layers". Throws ConfigError, for a bare nn.ReLU with the hint to
/// write nn.ReLU{}.
RawLayer ToRawLayer(lua_State* L, int index, const std::string& what);

/// The function at `index` as a functional layer, or as a loss.
LayerSpec FunctionLayer(lua_State* L, int index);

}  // namespace strata::lua
