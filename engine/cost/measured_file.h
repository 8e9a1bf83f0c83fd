// Files of what was measured, which keys of a job name: costs, links. Private to the package.
#pragma once

#include <string>

#include "engine/base/value.h"

namespace strata {

/// The JSON of the file at `path`, which the job's `key` names. Throws ConfigError, beginning with
/// the key: no such file, an empty one, no JSON.
Value ReadMeasuredFile(const std::string& key, const std::string& path);

}  // namespace strata
