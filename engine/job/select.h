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
/// never backtracks, so no expression can make it run for ever. `subject` is the key that holds the
/// expression, for errors: "partition", "freeze". Throws ConfigError for a broken expression.
std::regex CompileRegex(std::string_view regex, std::string_view subject);

/// The indices of the layers whose type contains a match of the regular expression; for Lua
/// functions the name is used. Ascending; may be empty. `subject` and errors as in CompileRegex().
std::vector<int> LayersOfType(std::string_view regex, const std::vector<LayerSpec>& layers,
                              std::string_view subject);

/// The indices of the selected layers, ascending, each once. Of a list in parts (parts.h) the
/// places of all parts of layers of the script's list. Throws ConfigError for an index
/// outside of the list, an unknown name (with the nearest one), and an expression without a match.
std::vector<int> SelectLayers(const LayerSelector& selector, const std::vector<LayerSpec>& layers,
                              std::string_view subject);

}  // namespace strata
