// Reads and loads scripts: files, texts, paths named by a script, and the places of errors.
// Internal to lua/.
#pragma once

#include <lua.hpp>
#include <string>
#include <string_view>

#include "lua/core/core.h"

namespace strata::lua {

/// The largest size of a script or module, in bytes.
inline constexpr size_t kMaxScript = size_t{16} << 20;

/// Reads a whole file. `what` is the file's role in errors: "the script". Throws ConfigError if the
/// file is missing, is not a regular file, cannot be read, or is larger than `most` bytes.
std::string ReadText(const std::string& path, std::string_view what, size_t most);

/// The full path of the file `relative` in `folder` or below it; symbolic links are resolved.
/// Throws ConfigError when the file does not exist, when a link leads out of the folder, and when
/// `relative` is absolute or contains "..". `what` as in ReadText().
std::string PathWithin(const std::string& folder, std::string_view relative, std::string_view what);

/// Compiles a text and pushes it as a function. `lua_name` is a chunk name for lua_load ("@file",
/// "=name"). Throws ConfigError for a syntax error, with its line, and for bytecode.
void LoadText(lua_State* L, std::string_view text, const std::string& lua_name);

/// Compiles the chunk's source as LoadText() does, and keeps the chunk in Core::chunks. `name` is
/// its key there, and its name in errors.
void LoadChunk(lua_State* L, const std::string& name, Chunk chunk);

/// Reads and compiles the script at `path` and pushes it as a function. `path` is also the chunk's
/// name. The script's `require` looks in the script's folder.
void LoadScript(lua_State* L, const std::string& path);

/// Finds the line of a call f{key=..., ...} over several lines that an error is about. Lua knows
/// only the first or the last line of the call: `place`, "FILE:LINE". If the error's text contains
/// a key of the table, the result is the place of that key; otherwise it is `place`.
std::string PlaceOfKey(const State::Core& core, const std::string& place, std::string_view text);

/// Resolves a path written in a script, which is relative to the folder of the calling chunk. The
/// result begins with that folder as the user wrote it.
std::string PathFromScript(lua_State* L, const std::string& path);

}  // namespace strata::lua
