// Follows a chain of names from value to value.
#include "lua/prompt/follow.h"

#include <algorithm>
#include <cctype>
#include <vector>

#include "lua/core/binding.h"
#include "lua/core/expression.h"
#include "lua/core/notes.h"
#include "lua/core/object.h"
#include "lua/library/layer_object.h"

namespace strata::lua {
namespace {

/// FollowStep() if the value at the top of the stack is a type.
bool FollowTypeStep(lua_State* L, const std::string& step) {
  if (PushTypeMethod(L, -1, step) || PushTypeLookup(L, -1, step)) {
    lua_remove(L, -2);
    return true;
  }
  if (!PushTypeProperty(L, -1, step)) return false;
  if (!PushResult(L, -1)) {
    lua_pop(L, 1);
    return false;
  }
  lua_replace(L, -3);
  lua_pop(L, 1);
  return true;
}

/// FollowStep() for a call of the function at the top of the stack.
bool FollowCall(lua_State* L) {
  if (ObjectAt<LayerConstructor>(L, -1)) {
    GivenType<LayerSpec>(L);
  } else if (!PushResult(L, -1)) {
    return false;
  }
  lua_remove(L, -2);
  return true;
}

}  // namespace

bool IsOperators(lua_State* L, int index) {
  lua_getfield(L, LUA_REGISTRYINDEX, kLibrary);
  lua_getfield(L, -1, "F");
  const bool same = lua_rawequal(L, -1, index);
  lua_pop(L, 2);
  return same;
}

bool FollowStep(lua_State* L, const std::string& step) {
  if (step.empty()) return false;
  if (step == kCallStep) return FollowCall(L);
  if (IsType(L, -1)) return FollowTypeStep(L, step);
  const bool index = std::isdigit(static_cast<unsigned char>(step[0])) && step.size() < 9;
  if (lua_istable(L, -1)) {
    if (index) {
      lua_rawgeti(L, -1, std::stoi(step));
    } else {
      PushText(L, step);
      lua_rawget(L, -2);
    }
    if (lua_isnil(L, -1)) {
      lua_pop(L, 1);
      if (index || !IsOperators(L, lua_gettop(L))) return false;
      lua_getfield(L, -1, step.c_str());  // makes the operator, or throws if there is none
    }
  } else {
    const std::vector<std::string> members = ObjectMembers(L, -1);
    if (std::find(members.begin(), members.end(), step) == members.end()) return false;
    lua_getfield(L, -1, step.c_str());
  }
  lua_remove(L, -2);
  return true;
}

}  // namespace strata::lua
