// Choosing layers by index, by name, or by type.
#pragma once

#include <regex>
#include <string>
#include <string_view>
#include <vector>

#include "engine/spec/job.h"
#include "engine/spec/layer_spec.h"

namespace strata {

/// The regular expression (ECMAScript without references back), ignoring case; matching takes time
/// in proportion to its length, whatever it is. Throws ConfigError for a broken one. `subject` is
/// what it stands in: "partition", "freeze".
std::regex CompileRegex(std::string_view regex, std::string_view subject);

/// Indices of the layers whose type, or name where it is a Lua function, contains a match of the
/// regular expression (ECMAScript), ignoring case. Ascending, may be empty. Throws ConfigError for
/// a broken expression. `subject` is what the expression stands in: "partition", "freeze".
std::vector<int> LayersOfType(std::string_view regex, const std::vector<LayerSpec>& layers,
                              std::string_view subject);

/// Indices of the selected layers, ascending, each once. Throws ConfigError: an index outside the
/// list, a name that no layer has (with the nearest), an expression without a match.
std::vector<int> SelectLayers(const LayerSelector& selector, const std::vector<LayerSpec>& layers,
                              std::string_view subject);

}  // namespace strata
