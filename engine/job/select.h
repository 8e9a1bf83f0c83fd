// Selects layers of a list by index, by name, or by a regular expression on their types.
#pragma once

#include <regex>
#include <string>
#include <string_view>
#include <vector>

#include "engine/job/job.h"
#include "engine/layers/layer_spec.h"

namespace strata {

/// Compiles a regular expression (ECMAScript without back references) that ignores case. Matching
/// does not backtrack, so no expression can make it take exponential time. `subject` is the key
/// that holds the expression, for errors: "partition", "freeze". Throws ConfigError for a broken
/// expression, or one of more than 1,000 characters.
std::regex CompileRegex(std::string_view regex, std::string_view subject);

/// The indices of the layers whose type contains a match of the regular expression; for Lua
/// functions the name counts too. They are ascending, and there may be none. `subject` and errors
/// as in CompileRegex().
std::vector<int> LayersOfType(std::string_view regex, const std::vector<LayerSpec>& layers,
                              std::string_view subject);

/// The indices of the selected layers, ascending, each once. If the list has parts (parts.h), the
/// selector's indices are those of the script's list, and the result has the positions of all their
/// parts. Throws ConfigError for an index outside the list, an unknown name (with the nearest one),
/// and an expression without a match.
std::vector<int> SelectLayers(const LayerSelector& selector, const std::vector<LayerSpec>& layers,
                              std::string_view subject);

}  // namespace strata
