// strata.json and strata.read.

#include "engine/base/text.h"
#include "lua/binding.h"
#include "lua/chunk.h"
#include "lua/convert.h"
#include "lua/core.h"
#include "lua/help.h"
#include "lua/library.h"

namespace strata::lua {
namespace {

constexpr size_t kMaxFile = size_t{256} << 20;

int JsonDecode(lua_State* L) {
  PushValue(L, Value::FromJson(TextArgument(L, 1, "JSON text")));
  return 1;
}

/// strata.json.encode(value [, indent])
int JsonEncode(lua_State* L) {
  if (lua_isnone(L, 1)) ThrowExpected(L, 1, "a value");
  const int indent = lua_isnoneornil(L, 2) ? -1 : static_cast<int>(IntArgument(L, 2, "an indent"));
  if (indent > 16) throw ConfigError("an indent is at most 16");
  PushText(L, ToValue(L, 1, "the value").ToJson(indent));
  return 1;
}

/// strata.read(path): a file below the script's folder, as a string.
int Read(lua_State* L) {
  const std::string path = TextArgument(L, 1, "a file's path");
  const std::string folder = State::Core::Of(L).CallingChunk(L).folder;
  PushText(L, ReadText(PathWithin(folder, path, "strata.read"), "strata.read", kMaxFile));
  return 1;
}

}  // namespace

void AddFiles(lua_State* L) {
  lua_newtable(L);
  const NamedFunction json[] = {
      {"decode", Bound<JsonDecode>, "strata.json.decode(text): the value that JSON text says"},
      {"encode", Bound<JsonEncode>,
       "strata.json.encode(value [, indent]): the value as JSON text"}};
  SetFunctions(L, json);
  NoteHelp(L, -1, "strata.json: JSON text and values");
  lua_setfield(L, -2, "json");
  const NamedFunction files[] = {
      {"read", Bound<Read>, "strata.read(path): the text of a file below the script's folder"}};
  SetFunctions(L, files);
}

}  // namespace strata::lua
