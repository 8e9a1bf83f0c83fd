// Where scripts may read. Internal to lua/.
//
// A script reads in its own folder and below, in what the command line names (any flag or option
// whose value is a path), in the folders of --allow_read, and in those of Strata's own data. Links
// that lie there may lead anywhere: who made them could have copied the files. At the prompt every
// path goes.
#pragma once

#include <lua.hpp>
#include <string>
#include <string_view>

namespace strata::lua {

/// The path of a file or folder that the running script names, relative to `folder` or absolute.
/// `what` says in errors what asks, "strata.read". Throws ConfigError, which names the flag, for
/// what the script may not read. Whether it exists is for who opens it.
std::string ReadablePath(lua_State* L, const std::string& folder, std::string_view path,
                         std::string_view what);

/// The folder of the chunk that runs.
std::string CallingFolder(lua_State* L);

}  // namespace strata::lua
