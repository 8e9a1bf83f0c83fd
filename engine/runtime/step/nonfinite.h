// What ranks tell each other of a step that was examined, and what comes of it for the user.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/runtime/interface/engine.h"
#include "engine/runtime/stage/examiner.h"

namespace strata {

std::string ToText(const std::optional<Finding>& finding, bool has_finite_weights);
/// Of the texts of all ranks: the first finding.
NonFinite FirstOf(const std::vector<std::string>& texts);
/// "nan" of either sign, "inf", "0.25".
std::string NumberText(double value);

}  // namespace strata
