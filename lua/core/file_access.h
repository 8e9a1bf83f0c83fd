// Where scripts may read and write. Internal to lua/.
//
// A script reads in its own folder and below, in what the command line names (any flag or option
// whose value is a path), in the folders of --allow_read, and in those of Strata's own data. Links
// that lie there may lead anywhere: who made them could have copied the files. At the prompt every
// path goes.
//
// A script writes in its own folder and below, nothing hidden. A line typed at the prompt writes
// anywhere; a function of a script that it calls does not.
#pragma once

#include <lua.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace strata::lua {

/// The path of a file or folder that the running script names, relative to `folder` or absolute.
/// `what` says in errors what asks, "strata.read". Throws ConfigError, which names the flag, for
/// what the script may not read. Whether it exists is for who opens it.
std::string ReadablePath(lua_State* L, const std::string& folder, std::string_view path,
                         std::string_view what);

/// The folder of the chunk that runs.
std::string CallingFolder(lua_State* L);

/// Whether the line that runs now was typed at the prompt.
bool AtPrompt(lua_State* L);

/// The path of a file that the running line writes; its name must end in one of `ends`. `what` as
/// in ReadablePath(). Throws ConfigError for a file that the line may not write.
std::string WritablePath(lua_State* L, const std::string& path,
                         const std::vector<std::string>& ends, std::string_view what);

/// Throws ConfigError, with `key` of the job, for a path where a training that the running line
/// begins may not write. Relative to the current folder, it lies below that or the script's own;
/// what is typed at the prompt writes anywhere.
void CheckTrainingWrites(lua_State* L, const std::string& path, std::string_view key);

/// Throws ConfigError "PATH is there and is no KIND; it stays" for anything at `path` but a file
/// that `is_one` takes for one. A link is not followed.
void CheckReplaceable(const std::string& path, std::string_view kind,
                      bool (*is_one)(const std::string& path));

}  // namespace strata::lua
