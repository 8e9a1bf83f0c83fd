// Topologies as Lua values. Internal to lua/.
#pragma once

#include "engine/plan/topology.h"
#include "lua/core/object.h"

namespace strata::lua {

template <>
struct TypeOf<Topology> {
  static const ObjectType& Get();
};

}  // namespace strata::lua
