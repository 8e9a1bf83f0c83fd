// The catalog: all that the library holds, as one plain value. Reference pages, editors'
// annotations and completion in shells come from it.
#pragma once

#include "engine/base/fields/fields.h"
#include "engine/base/value.h"
#include "lua/core/state.h"

namespace strata::lua {

/// [{name, kind, takes, default, required, help, choices}, ...] of what a user may write. `default`
/// is as Lua writes it, "none" where there is none; `choices` are the strings that the field takes.
Value FieldsValue(const FieldTable& fields);

/// The catalog of the state's library, without tensors' own methods and operators (those of ATen):
///   keys       [{name, ..., tables = [{name, fields}]}]: the job's, with the tables they take
///   layers     [{name, call, help, shapes, loss, fields}]: "nn.Conv2d", losses last
///   sources, steps   [{name, help, fields}]: "strata.data.csv", "d:take"
///   functions  [{name, help, fields, gives}]: "strata.read"; `gives` names a type
///   types      [{name, help, methods, properties}], each member {name, help, fields, gives}
///   schedules, partitions   their names; metrics [{name, more_is_better}]
Value Catalog(State& state);

}  // namespace strata::lua
