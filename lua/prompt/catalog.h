// The catalog: the content of the library as one plain value. Reference pages, editors' annotations
// and the completion in shells are made from it.
#pragma once

#include "engine/base/fields/fields.h"
#include "engine/base/value.h"
#include "lua/core/state.h"

namespace strata::lua {

/// [{name, kind, takes, default, required, help, choices}, ...] for the fields that a user may
/// write. `default` is in Lua's syntax, or "none"; `choices` are the strings that the field
/// accepts.
Value FieldsValue(const FieldTable& fields);

/// The catalog of the state's library, without the methods and operators of tensors, which are
/// ATen's:
///   keys       [{name, ..., tables = [{name, fields}]}]: the job's, with the tables they take
///   layers     [{name, call, help, shapes, loss, fields}]: "nn.Conv2d", losses last
///   sources, steps   [{name, help, fields}]: "strata.data.csv", "d:take"
///   functions  [{name, help, fields, gives}]: "strata.read"; `gives` names a type
///   types      [{name, help, methods, properties}], each member {name, help, fields, gives}
///   schedules, partitions   their names; metrics [{name, more_is_better}]
Value Catalog(State& state);

}  // namespace strata::lua
