// The rules for where scripts may read and write. Internal to lua/.
//
// A script may read in its own folder and below, in the paths that the command line names (any flag
// or option whose value is a path), in the folders of --allow_read, and in the folders of Strata's
// own data. Symbolic links that lie there may lead anywhere: whoever made them could have copied
// the files as well. A line at the prompt may read any path.
//
// A script may write in its own folder and below, but no hidden files. A line typed at the prompt
// may write anywhere; a function of a script that the line calls may not.
#pragma once

#include <lua.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace strata::lua {

/// The full path of a file or folder that the running script names, relative to `folder` or
/// absolute. `what` is the caller's name in errors, "strata.read". Throws ConfigError, which names
/// the flag, for a path that the script may not read. It does not check that the path exists.
std::string ReadablePath(lua_State* L, const std::string& folder, std::string_view path,
                         std::string_view what);

/// The folder of the chunk that runs now.
std::string CallingFolder(lua_State* L);

/// True if the line that runs now was typed at the prompt.
bool AtPrompt(lua_State* L);

/// The path of a file that the running line wants to write; its name must end in one of `ends`.
/// `what` as in ReadablePath(). Throws ConfigError for a file that the line may not write.
std::string WritablePath(lua_State* L, const std::string& path,
                         const std::vector<std::string>& ends, std::string_view what);

/// Checks a path to which a training started by the running line would write. It must lie below the
/// script's folder or the current one; relative paths are relative to the current folder. A line
/// typed at the prompt may write anywhere. Throws ConfigError that names the job's `key`.
void CheckTrainingWrites(lua_State* L, const std::string& path, std::string_view key);

/// Checks that a file may be overwritten: throws ConfigError "PATH is there and is no KIND; it
/// stays" if `path` exists and is not a regular file for which `is_one` returns true. Links are not
/// followed.
void CheckReplaceable(const std::string& path, std::string_view kind,
                      bool (*is_one)(const std::string& path));

}  // namespace strata::lua
