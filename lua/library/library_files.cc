// The function strata.read.

#include "lua/core/bind.h"
#include "lua/core/chunk.h"
#include "lua/core/core.h"
#include "lua/core/file_access.h"
#include "lua/library/library.h"

namespace strata::lua {
namespace {

constexpr size_t kMaxFile = size_t{256} << 20;

/// strata.read(path) returns a file as a string, if the script may read it.
std::string Read(lua_State* L, const std::string& path) {
  return ReadText(ReadablePath(L, CallingFolder(L), path, "strata.read"), "strata.read", kMaxFile);
}

}  // namespace

void AddFiles(lua_State* L) {
  const NamedFunction files[] = {
      {"read", FunctionOf<1, Read, "a file's path">,
       "strata.read(path): the text of a file below the script's folder, or where --allow_read "
       "lets it"}};
  SetFunctions(L, files);
}

}  // namespace strata::lua
