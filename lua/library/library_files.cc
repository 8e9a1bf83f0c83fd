// strata.read.

#include "lua/core/binding.h"
#include "lua/core/chunk.h"
#include "lua/core/core.h"
#include "lua/library/library.h"

namespace strata::lua {
namespace {

constexpr size_t kMaxFile = size_t{256} << 20;

/// strata.read(path): a file below the script's folder, as a string.
int Read(lua_State* L) {
  const std::string path = TextArgument(L, 1, "a file's path");
  const std::string folder = State::Core::Of(L).CallingChunk(L).folder;
  PushText(L, ReadText(PathWithin(folder, path, "strata.read"), "strata.read", kMaxFile));
  return 1;
}

}  // namespace

void AddFiles(lua_State* L) {
  const NamedFunction files[] = {
      {"read", Bound<Read, 1>, "strata.read(path): the text of a file below the script's folder"}};
  SetFunctions(L, files);
}

}  // namespace strata::lua
