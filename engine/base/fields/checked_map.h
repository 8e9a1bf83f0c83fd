// Checks maps that were read from files. The program wrote these files, but a user may have changed
// them since.
#pragma once

#include <string>

#include "engine/base/fields/fields.h"
#include "engine/base/value.h"

namespace strata {

/// Returns the map in canonical form, as Canonicalize() does. `noun` is the word for the map's
/// names in messages, such as "key". Throws ConfigError, which begins with `subject`, also if
/// `value` is not a map.
Value CheckedMap(const FieldTable& fields, const Value& value, const std::string& subject,
                 const std::string& noun);

}  // namespace strata
