// Datasets, which are data with a known size, as Lua values. Internal to lua/.
#pragma once

#include <lua.hpp>
#include <memory>
#include <string>
#include <string_view>

#include "engine/data/dataset.h"
#include "lua/core/object.h"

namespace strata::lua {

/// The result of strata.data.NAME{...}, and of every step on it, such as d:take(5). The data is
/// opened when a script first reads its content: #d, d[i], print(d), d:split{...}.
struct DatasetObject {
  Value source;        ///< engine/job/data_source.h
  std::string folder;  ///< the folder to which relative paths in `source` refer
  std::shared_ptr<const Dataset> opened = {};
};

template <>
struct TypeOf<DatasetObject> {
  static const ObjectType& Get();
};

/// The data, which the first call opens.
const Dataset& Opened(lua_State* L, DatasetObject& object);

/// A function that opens a job's data to read its facts, relative to the folder of the job's
/// script. REQUIRES: it is called while `L` runs.
ExamineData ExamineIn(lua_State* L, const std::string& script);

/// ToValue() for keys of a job of `script`, which resolves relative paths in its own folder. If a
/// dataset among the keys was made in another folder, its paths become absolute, and the script is
/// allowed to read them. Throws ConfigError as ToValue() does, and for data that could not be read
/// where it was made.
Value ToValueFor(lua_State* L, const std::string& script, int index, std::string_view what);

/// Throws ConfigError if the data, or data that it is made of, has a path that the script may not
/// read.
void CheckMayRead(lua_State* L, const DataSpec& spec, const std::string& folder);
void CheckMayRead(lua_State* L, const Job& job);

/// The function strata.data.NAME{...}. Upvalue: NAME.
int MakeDataset(lua_State* L);

}  // namespace strata::lua
