// strata.data: the declarations of data sources.

#include "engine/base/text.h"
#include "engine/job/data_source.h"
#include "lua/core/arguments.h"
#include "lua/core/bind.h"
#include "lua/core/core.h"
#include "lua/core/notes.h"
#include "lua/library/dataset_object.h"
#include "lua/library/library.h"

namespace strata::lua {

void AddData(lua_State* L) {
  lua_newtable(L);
  for (const DataSourceType& type : DataSourceTypes()) {
    PushText(L, type.name);
    lua_pushcclosure(L, Bound<MakeDataset>, 1);
    NoteHelp(L, -1,
             Str(type.name == "dataset" ? "strata." : "strata.data.", type.name,
                 "{...}: ", type.help, "\n", FieldHelp(type.fields)));
    NoteFields(L, -1, type.fields);
    NoteResult(L, -1, GivenType<DatasetObject>);
    if (type.name == "dataset") {  // this one is strata.dataset
      lua_setfield(L, -3, type.name.c_str());
      continue;
    }
    lua_setfield(L, -2, type.name.c_str());
  }
  RefuseUnknownNames(L, "strata.data.");
  NoteHelp(L, -1, "strata.data: where samples come from; also function(i) -> input, target");
  lua_setfield(L, -2, "data");
}

}  // namespace strata::lua
