// What a save tells of the data that it was trained with, so that its outputs keep their meaning.
#pragma once

#include <string>
#include <vector>

#include "engine/base/value.h"
#include "engine/job/job.h"

namespace strata {

/// {classes={"cat", "dog"}, encoding="0123..."}, of DataSpec, as a save gives it back; null where
/// the data has neither.
Value SavedData(const DataSpec& train);

/// Throws ConfigError where a class of the save has another number now, so that its outputs would
/// get the names of others. `saved`, `now`: of SavedData(). `path`: the save's.
void CheckClasses(const Value& saved, const Value& now, const std::string& path);

/// What else has changed, a line each: other names, other numbers of a table's cells.
std::vector<std::string> ChangesOfData(const Value& saved, const Value& now);

}  // namespace strata
