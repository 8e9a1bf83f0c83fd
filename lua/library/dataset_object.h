// Data with an end as a value of Lua. Internal to lua/.
#pragma once

#include <lua.hpp>
#include <memory>
#include <string>
#include <string_view>

#include "engine/data/dataset.h"
#include "lua/core/object.h"

namespace strata::lua {

/// What strata.data.NAME{...} gives, and every step over it: d:take(5). It is opened when somebody
/// asks what it holds: #d, d[i], print(d), d:split{...}.
struct DatasetObject {
  Value source;        ///< engine/job/data_source.h
  std::string folder;  ///< relative paths are relative to it
  std::shared_ptr<const Dataset> opened = {};
};

template <>
struct TypeOf<DatasetObject> {
  static const ObjectType& Get();
};

/// The data, opened at the first call.
const Dataset& Opened(lua_State* L, DatasetObject& object);

/// Opens a job's data for its facts, in the folder of its script. REQUIRES: it is called while `L`
/// runs.
ExamineData ExamineIn(lua_State* L, const std::string& script);

/// ToValue() of keys that are for a job of `script`, which resolves relative paths in its own
/// folder: those of data that was made elsewhere become whole, and the script may read what they
/// name. Throws ConfigError as ToValue() does, and for data that may not be read where it was made.
Value ToValueFor(lua_State* L, const std::string& script, int index, std::string_view what);

/// Throws ConfigError where data, or what it is of, has a path that the script may not read.
void CheckMayRead(lua_State* L, const DataSpec& spec, const std::string& folder);
void CheckMayRead(lua_State* L, const Job& job);

/// strata.data.NAME{...}. Upvalue: NAME.
int MakeDataset(lua_State* L);

}  // namespace strata::lua
