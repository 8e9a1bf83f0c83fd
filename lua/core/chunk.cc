#include "lua/core/chunk.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "lua/core/binding.h"
#include "lua/library/library.h"
#include "lua/prompt/expression.h"
#include "lua/sandbox/sandbox.h"

namespace strata::lua {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxScript = size_t{16} << 20;

// The registry's table of what modules gave, by name.
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

/// Pushes what the module gave before, or nil. The table of modules stays below it.
void PushLoaded(lua_State* L, const std::string& key) {
  luaL_newmetatable(L, kModules);
  PushText(L, key);
  lua_rawget(L, -2);
}

/// Notes the value at the top as what the module gave.
void NoteLoaded(lua_State* L, const std::string& key) {
  luaL_newmetatable(L, kModules);
  PushText(L, key);
  lua_pushvalue(L, -3);
  lua_rawset(L, -3);
  lua_pop(L, 1);
}

/// Calls the module's function at the top with its name. One that fails is not loaded.
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

/// require(name): a file beside the script, run once. A module that is asked for while it loads
/// gives true, as does one that returns nothing.
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

std::string ReadText(const std::string& path, std::string_view what, size_t most) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) throw ConfigError(Str("there is no file ", path, " (", what, ")"));
  if (!fs::is_regular_file(status)) throw ConfigError(Str(path, " is not a file (", what, ")"));
  if (fs::file_size(path, error) > most) {
    throw ConfigError(
        Str(path, " is larger than ", FormatBytes(static_cast<double>(most)), " (", what, ")"));
  }
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) throw ConfigError(Str("cannot read ", path, ": ", std::strerror(errno)));
  return text.str();
}

std::string PathWithin(const std::string& folder, std::string_view relative,
                       std::string_view what) {
  const fs::path asked{relative};
  const bool climbs = std::find(asked.begin(), asked.end(), "..") != asked.end();
  if (relative.empty() || asked.is_absolute() || climbs || relative.find('\0') != relative.npos) {
    throw ConfigError(
        Str(what, " must be a file below the script's folder, not \"", relative, "\""));
  }
  std::error_code error;
  const fs::path root = fs::canonical(folder, error);
  const fs::path path = fs::canonical(root / asked, error);
  if (error)
    throw ConfigError(
        Str("there is no file ", (fs::path(folder) / asked).string(), " (", what, ")"));
  const auto [end, unused] = std::mismatch(root.begin(), root.end(), path.begin(), path.end());
  if (end != root.end()) {
    throw ConfigError(Str(what, " \"", relative, "\" is a link that leaves the script's folder"));
  }
  return path.string();
}

void LoadText(lua_State* L, std::string_view text, const std::string& lua_name) {
  if (text.starts_with('\x1b')) {
    // Lua's names of chunks begin with '@' or '='.
    throw ConfigError(Str(lua_name.substr(1), ": scripts are text; this is bytecode"));
  }
  const int status = luaL_loadbufferx(L, text.data(), text.size(), lua_name.c_str(), "t");
  if (status == LUA_ERRMEM) throw std::bad_alloc();
  if (status != 0) throw ConfigError(std::string(TextAt(L, -1)));
}

void LoadChunk(lua_State* L, const std::string& name, Chunk chunk) {
  std::string_view text = chunk.source;
  if (text.starts_with("#")) text.remove_prefix(std::min(text.find('\n'), text.size()));
  LoadText(L, text, "@" + name);
  State::Core::Of(L).chunks[name] = std::move(chunk);
}

void LoadScript(lua_State* L, const std::string& path) {
  std::string text = ReadText(path, "the script", kMaxScript);
  const fs::path real = fs::canonical(path);
  LoadChunk(L, path,
            {std::move(text), real.parent_path().string(), fs::path(path).parent_path().string()});
}

std::string PathFromScript(lua_State* L, const std::string& path) {
  return (fs::path(State::Core::Of(L).CallingChunk(L).shown_folder) / path).string();
}

std::string PlaceOfKey(const State::Core& core, const std::string& place, std::string_view text) {
  const size_t colon = place.rfind(':');
  const auto chunk = core.chunks.find(place.substr(0, colon));
  if (chunk == core.chunks.end()) return place;
  const auto lines = KeyLines(chunk->second.source, std::stoi(place.substr(colon + 1)));
  const auto is_letter = [](unsigned char c) { return c == '_' || std::isalnum(c); };
  for (auto at = text.begin(); !lines.empty() && at != text.end();) {
    const auto begin = std::find_if(at, text.end(), is_letter);
    at = std::find_if_not(begin, text.end(), is_letter);
    const auto key = lines.find(std::string(begin, at));
    if (key != lines.end()) return Str(place.substr(0, colon + 1), key->second);
  }
  return place;
}

void OpenRequire(lua_State* L) {
  lua_pushcfunction(L, Bound<Require>);
  lua_setglobal(L, "require");
}

}  // namespace strata::lua
