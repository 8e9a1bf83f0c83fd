#include "engine/job/select.h"

#include <algorithm>
#include <regex>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/layers/layer_types.h"
#include "engine/layers/parts.h"

namespace strata {
namespace {

constexpr std::string_view kTypePrefix = "type:", kNamePrefix = "name:";

std::vector<std::string> Paths(const std::vector<LayerSpec>& layers) {
  std::vector<std::string> paths;
  for (size_t i = 0; i < layers.size(); ++i) {
    paths.push_back(LayerPath(layers[i], static_cast<int>(i)));
  }
  return paths;
}

int LayerAt(int64_t index, const std::vector<LayerSpec>& layers, std::string_view subject) {
  const auto size = static_cast<int64_t>(layers.size());
  if (index >= 0 && index < size) return static_cast<int>(index);
  throw ConfigError(
      Str(subject, ": there is no layer ", index, "; the layers are 0 to ", size - 1));
}

int LayerNamed(const std::string& name, const std::vector<LayerSpec>& layers,
               std::string_view subject) {
  const std::vector<std::string> paths = Paths(layers);
  const auto found = std::find(paths.begin(), paths.end(), name);
  if (found != paths.end()) return static_cast<int>(found - paths.begin());
  std::vector<std::string> names;
  for (const LayerSpec& layer : layers) {
    if (!layer.name.empty()) names.push_back(layer.name);
  }
  throw ConfigError(Str(subject, ": no layer has the name \"", name, "\"", DidYouMean(name, names),
                        "; a layer is chosen by index, by name or by \"type:REGEX\""));
}

std::vector<int> LayersWithName(std::string_view regex, const std::vector<LayerSpec>& layers,
                                std::string_view subject) {
  const std::regex expression = CompileRegex(regex, subject);
  const std::vector<std::string> paths = Paths(layers);
  std::vector<int> found;
  for (size_t i = 0; i < paths.size(); ++i) {
    if (std::regex_search(paths[i], expression)) found.push_back(static_cast<int>(i));
  }
  return found;
}

std::vector<int> Select(const Value& item, const std::vector<LayerSpec>& layers,
                        std::string_view subject) {
  if (item.is_int()) return {LayerAt(item.as_int(), layers, subject)};
  if (!item.is_string()) {
    throw ConfigError(
        Str(subject, " expects indices, names or \"type:REGEX\"; got ", item.Describe()));
  }
  const std::string_view text = item.as_string();
  const bool by_type = text.starts_with(kTypePrefix), by_name = text.starts_with(kNamePrefix);
  if (!by_type && !by_name) return {LayerNamed(item.as_string(), layers, subject)};
  const std::string_view regex = text.substr(kTypePrefix.size());
  std::vector<int> found =
      by_type ? LayersOfType(regex, layers, subject) : LayersWithName(regex, layers, subject);
  if (found.empty()) {
    throw ConfigError(
        Str(subject, ": no layer's ", by_type ? "type" : "name", " matches \"", regex, "\""));
  }
  return found;
}

/// The positions, in a list with parts, of all parts of the layers `selected`, which are indices of
/// the script's list.
std::vector<int> PartsOf(const std::vector<int>& selected, const std::vector<LayerSpec>& layers) {
  std::vector<int> places;
  int number = -1;
  for (int place = 0; place < static_cast<int>(layers.size()); ++place) {
    if (PartNumber(layers[static_cast<size_t>(place)].type) <= 0) ++number;
    if (std::ranges::binary_search(selected, number)) places.push_back(place);
  }
  return places;
}

}  // namespace

std::regex CompileRegex(std::string_view regex, std::string_view subject) {
  // __polynomial chooses libstdc++'s matcher without backtracking, which takes polynomial time.
  constexpr auto kSyntax =
      std::regex::ECMAScript | std::regex::icase | std::regex_constants::__polynomial;
  constexpr size_t kMostCharacters = 1000;
  try {
    if (regex.size() <= kMostCharacters) return std::regex(regex.begin(), regex.end(), kSyntax);
  } catch (const std::regex_error&) {
  }
  throw ConfigError(Str(subject, ": \"", regex,
                        "\" is not a regular expression (ECMAScript without ",
                        "references back, at most ", kMostCharacters, " characters)"));
}

std::vector<int> LayersOfType(std::string_view regex, const std::vector<LayerSpec>& layers,
                              std::string_view subject) {
  const std::regex expression = CompileRegex(regex, subject);
  std::vector<int> found;
  for (size_t i = 0; i < layers.size(); ++i) {
    const LayerSpec& layer = layers[i];
    const bool matches = std::regex_search(layer.type, expression) ||
                         (layer.scripted && std::regex_search(layer.name, expression));
    if (matches) found.push_back(static_cast<int>(i));
  }
  return found;
}

std::vector<int> SelectLayers(const LayerSelector& selector, const std::vector<LayerSpec>& layers,
                              std::string_view subject) {
  if (HasParts(layers)) return PartsOf(SelectLayers(selector, InWhole(layers), subject), layers);
  std::vector<int> selected;
  for (const Value& item : selector.items) {
    const std::vector<int> found = Select(item, layers, subject);
    selected.insert(selected.end(), found.begin(), found.end());
  }
  std::sort(selected.begin(), selected.end());
  selected.erase(std::unique(selected.begin(), selected.end()), selected.end());
  return selected;
}

}  // namespace strata
