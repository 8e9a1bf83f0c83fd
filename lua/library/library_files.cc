// strata.read.

#include "lua/core/bind.h"
#include "lua/core/chunk.h"
#include "lua/core/core.h"
#include "lua/library/library.h"

namespace strata::lua {
namespace {

constexpr size_t kMaxFile = size_t{256} << 20;

/// strata.read(path): a file below the script's folder, as a string.
std::string Read(lua_State* L, const std::string& path) {
  const std::string folder = State::Core::Of(L).CallingChunk(L).folder;
  return ReadText(PathWithin(folder, path, "strata.read"), "strata.read", kMaxFile);
}

}  // namespace

void AddFiles(lua_State* L) {
  const NamedFunction files[] = {
      {"read", FunctionOf<1, Read, "a file's path">,
       "strata.read(path): the text of a file below the script's folder"}};
  SetFunctions(L, files);
}

}  // namespace strata::lua
