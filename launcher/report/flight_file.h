// Writes a training's flight records (engine/runtime/watch/flight.h) to files.
#pragma once

#include <string>

#include "engine/base/value.h"

namespace strata::launcher {

/// Writes the record into the folder, which is made if needed, as flight-DATE-TIME.json under a
/// name that is free. Returns a line that says where it is, or why it could not be written.
std::string WriteFlightFile(const Value& record, const std::string& folder);

}  // namespace strata::launcher
