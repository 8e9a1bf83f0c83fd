// Layers, and lists of them, as Lua values. Internal to lua/.
#pragma once

#include <lua.hpp>
#include <string>
#include <vector>

#include "engine/job/build_job.h"
#include "engine/layers/layer_spec.h"
#include "engine/layers/layer_types.h"
#include "lua/core/object.h"

namespace strata::lua {

/// A type of layer, such as nn.Linear, before it is called.
struct LayerConstructor {
  std::string name;                 ///< "nn.Linear", "RMS"
  const LayerType* type = nullptr;  ///< a type of nn; null for a user's own
  FunctionRef init, forward;        ///< of a user's own type; `init` may be missing (id -1)
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

/// Reads the layers given by the value at `index`: a layer, a function, a cut mark, or a list of
/// these. `what` is its name in errors: "layers". Throws ConfigError; for nn.ReLU without {} the
/// message says to write nn.ReLU{}.
RawLayer ToRawLayer(lua_State* L, int index, const std::string& what);

/// The function at `index` as a functional layer or as a loss.
LayerSpec FunctionLayer(lua_State* L, int index);

}  // namespace strata::lua
