// Maps of files that the program wrote and anybody may have changed.
#pragma once

#include <string>

#include "engine/base/fields/fields.h"
#include "engine/base/value.h"

namespace strata {

/// The map in canonical form: as Canonicalize(). `noun`: the word for its names, "key". Throws
/// ConfigError, which begins with `subject`, also for a value that is no map.
Value CheckedMap(const FieldTable& fields, const Value& value, const std::string& subject,
                 const std::string& noun);

}  // namespace strata
