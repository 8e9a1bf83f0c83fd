// Files with one JSON object per line, and entries of these objects with errors that name the line.
#pragma once

#include <functional>
#include <string>

#include "engine/base/value.h"

namespace strata::data {

/// Calls body(object, "PATH:LINE") for every line of the file that is not empty. Throws WorldError
/// with the path and the line if a line is no JSON object.
void ForEachJsonLine(
    const std::string& path,
    const std::function<void(const Value& object, const std::string& where)>& body);

/// The entry of the object. Throws WorldError with `where` and the nearest key if it is missing.
const Value& EntryOf(const Value& object, const std::string& key, const std::string& where);
/// The same for an entry that must be a text.
const std::string& TextOf(const Value& object, const std::string& key, const std::string& where);

}  // namespace strata::data
