// The function require: it loads files beside the script, and "strata".
#include <filesystem>
#include <string>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "lua/core/binding.h"
#include "lua/core/chunk.h"
#include "lua/core/core.h"
#include "lua/core/sandbox.h"

namespace strata::lua {
namespace {

namespace fs = std::filesystem;

// The registry's table of module results, by the module's path.
constexpr char kModules[] = "strata.modules";

bool IsModuleName(const std::string& name) {
  constexpr std::string_view kLetters =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
  for (const std::string& part : Split(name, '.')) {
    if (part.empty() || part.find_first_not_of(kLetters) != std::string::npos) return false;
  }
  return true;
}

std::string ModuleFile(std::string name) {
  for (char& c : name) {
    if (c == '.') c = '/';
  }
  return name + ".lua";
}

/// Pushes the module's result from an earlier call, or nil. The table of modules stays below it.
void PushLoaded(lua_State* L, const std::string& key) {
  luaL_newmetatable(L, kModules);
  PushText(L, key);
  lua_rawget(L, -2);
}

/// Stores the value at the top of the stack as the module's result.
void NoteLoaded(lua_State* L, const std::string& key) {
  luaL_newmetatable(L, kModules);
  PushText(L, key);
  lua_pushvalue(L, -3);
  lua_rawset(L, -3);
  lua_pop(L, 1);
}

/// Calls the module's function, at the top of the stack, with the module's name. If it fails, the
/// module counts as not loaded.
void RunModule(lua_State* L, const std::string& name, const std::string& key) {
  const NestedCall nested(L);
  PushText(L, name);
  try {
    CallProtected(L, 1, 1);
  } catch (const Error&) {
    lua_pushnil(L);
    NoteLoaded(L, key);
    throw;
  }
}

/// require(name): runs a file beside the script once and returns its result. A module that returns
/// nothing gives true; so does one that is required again while it still loads.
int Require(lua_State* L) {
  const std::string name = TextArgument(L, 1, "the name of a file beside the script");
  if (name == "strata") {
    lua_getfield(L, LUA_REGISTRYINDEX, kLibrary);
    return 1;
  }
  if (!IsModuleName(name)) {
    throw ConfigError(
        Str("require finds files beside the script by a name such as \"blocks\" or "
            "\"lib.blocks\", not ",
            Describe(L, 1)));
  }
  const Chunk caller = State::Core::Of(L).CallingChunk(L);
  const std::string path = PathWithin(caller.folder, ModuleFile(name), "the module");
  PushLoaded(L, path);
  if (!lua_isnil(L, -1)) return 1;
  const std::string shown = (fs::path(caller.shown_folder) / ModuleFile(name)).string();
  LoadChunk(L, shown,
            {ReadText(path, "the module", kMaxScript), caller.folder, caller.shown_folder});
  lua_pushboolean(L, true);
  NoteLoaded(L, path);
  lua_pop(L, 1);
  RunModule(L, name, path);
  if (lua_isnil(L, -1)) lua_pushboolean(L, true);
  NoteLoaded(L, path);
  return 1;
}

}  // namespace

void OpenRequire(lua_State* L) {
  lua_pushcfunction(L, Bound<Require>);
  lua_setglobal(L, "require");
}

}  // namespace strata::lua
