// strata.data: the declarations of data sources.

#include "engine/base/text.h"
#include "engine/spec/job/data_source.h"
#include "lua/core/arguments.h"
#include "lua/core/bind.h"
#include "lua/core/core.h"
#include "lua/core/notes.h"
#include "lua/library/library.h"

namespace strata::lua {
namespace {

/// strata.data.NAME{...}. Upvalue: NAME.
Value MakeSource(lua_State* L) {
  const std::string name(TextAt(L, lua_upvalueindex(1)));
  const Arguments arguments(L, 1);
  const std::string subject = "strata.data." + name;
  return MakeDataSource(name, arguments.Positional(subject), arguments.Named(subject),
                        State::Core::Of(L).Place(L));
}

}  // namespace

void AddData(lua_State* L) {
  lua_newtable(L);
  for (const DataSourceType& type : DataSourceTypes()) {
    PushText(L, type.name);
    lua_pushcclosure(L, Function<MakeSource>, 1);
    NoteHelp(L, -1,
             Str("strata.data.", type.name, "{...}: ", type.help, "\n", FieldHelp(type.fields)));
    NoteFields(L, -1, type.fields);
    lua_setfield(L, -2, type.name.c_str());
  }
  RefuseUnknownNames(L, "strata.data.");
  NoteHelp(L, -1, "strata.data: where samples come from; also function(i) -> input, target");
  lua_setfield(L, -2, "data");
}

}  // namespace strata::lua
