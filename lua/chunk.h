// Scripts as files and as text. Internal to lua/.
#pragma once

#include <lua.hpp>
#include <string>
#include <string_view>

#include "lua/core.h"

namespace strata::lua {

/// The text of a file. Throws ConfigError: missing, a folder, unreadable, larger than `most` bytes.
/// `what` is what it was meant to be, "the script".
std::string ReadText(const std::string& path, std::string_view what, size_t most);

/// The file `relative` below `folder`. Throws ConfigError unless it is there, really below the
/// folder after all symbolic links, and asked for without ".." and not absolutely.
std::string PathWithin(const std::string& folder, std::string_view relative, std::string_view what);

/// Pushes the function of a text under a name that lua_load takes ("@file", "=name"). Throws
/// ConfigError with the line of a syntax error, and for bytecode.
void LoadText(lua_State* L, std::string_view text, const std::string& lua_name);

/// LoadText() that notes it under `name`, which errors will show.
void LoadChunk(lua_State* L, const std::string& name, Chunk chunk);

/// Reads and loads the script at `path`, which is its name too; its folder is where it looks for
/// others. Pushes its function.
void LoadScript(lua_State* L, const std::string& path);

/// The place of an error that `text` tells of, where all that is known is the line on which a call
/// f{...} ends or begins: that of the key which it speaks of first, where it speaks of one.
std::string PlaceOfKey(const State::Core& core, const std::string& place, std::string_view text);

/// A path that a script wrote, from where it looks: relative to the calling chunk's folder, as the
/// user would write it.
std::string PathFromScript(lua_State* L, const std::string& path);

}  // namespace strata::lua
