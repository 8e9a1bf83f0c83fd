// Reading and loading scripts.
#include "lua/core/chunk.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "lua/core/binding.h"
#include "lua/core/expression.h"
#include "lua/core/globals.h"

namespace strata::lua {
namespace fs = std::filesystem;

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
    // `lua_name` begins with '@' or '=', which is not part of the name.
    throw ConfigError(Str(lua_name.substr(1), ": scripts are text; this is bytecode"));
  }
  const int status = luaL_loadbufferx(L, text.data(), text.size(), lua_name.c_str(), "t");
  if (status == LUA_ERRMEM) throw std::bad_alloc();
  if (status == 0) return;
  std::string error(TextAt(L, -1));
  const std::string name = lua_name.substr(1);
  if (name.size() >= LUA_IDSIZE) error.replace(0, LUA_IDSIZE - 1, name);  // Lua shortened it
  throw ConfigError(error + SyntaxHint(error, text));
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
  const Chunk* const chunk = core.ChunkAt(place);
  if (!chunk) return place;
  const size_t colon = place.rfind(':');
  const auto lines = KeyLines(chunk->source, std::stoi(place.substr(colon + 1)));
  for (auto at = text.begin(); !lines.empty() && at != text.end();) {
    const auto begin = std::find_if(at, text.end(), IsNameLetter);
    at = std::find_if_not(begin, text.end(), IsNameLetter);
    const auto key = lines.find(std::string(begin, at));
    if (key != lines.end()) return Str(place.substr(0, colon + 1), key->second);
  }
  return place;
}

}  // namespace strata::lua
