// What a save records about its training data, so that its outputs keep their meaning.
#pragma once

#include <string>
#include <vector>

#include "engine/base/value.h"
#include "engine/job/job.h"

namespace strata {

/// Returns {classes={"cat", "dog"}, encoding="0123..."} of a DataSpec, as it reads back from a
/// save; null if the data have neither.
Value SavedData(const DataSpec& train);

/// Throws ConfigError if a class of the save has another number in the data now, because outputs
/// would then get wrong names. `saved`, `now`: from SavedData(). `path`: the path of the save.
void CheckClasses(const Value& saved, const Value& now, const std::string& path);

/// Describes other changes, one line each: other class names, or another encoding of a table's
/// cells.
std::vector<std::string> ChangesOfData(const Value& saved, const Value& now);

}  // namespace strata
