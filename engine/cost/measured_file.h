// Reads the files of measurements that the job keys `costs` and `links` name. Private to the
// package.
#pragma once

#include <string>

#include "engine/base/value.h"

namespace strata {

/// The JSON value of the file at `path`, which the job's `key` names. Throws ConfigError, beginning
/// with the key, if the file cannot be read, is empty or holds no valid JSON.
Value ReadMeasuredFile(const std::string& key, const std::string& path);

}  // namespace strata
