// Flattens nested lists depth-first, records the positions of cuts, and then checks layers, names,
// connections, ties and cuts, in this order.
#include "engine/job/layer_list.h"

#include <algorithm>
#include <map>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/job/ties.h"
#include "engine/layers/connections.h"
#include "engine/layers/layer_types.h"

namespace strata {
namespace {

void Add(const RawLayer& raw, LayerList& list) {
  switch (raw.kind) {
    case RawLayer::Kind::kLayer:
      list.layers.push_back(raw.layer);
      return;
    case RawLayer::Kind::kCut:
      list.cuts.push_back(static_cast<int>(list.layers.size()));
      return;
    case RawLayer::Kind::kList:
      for (const RawLayer& item : raw.list) Add(item, list);
      return;
  }
}

bool LooksLikeIndex(const std::string& name) {
  return !name.empty() &&
         std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; });
}

void CheckLayer(const LayerSpec& layer, size_t index) {
  const std::string place = Str(Place(layer.where), "layer ", index, " ", layer.ToString());
  const LayerType* type = FindLayerType(layer.type);
  if (!layer.scripted && type && type->is_loss) {
    throw ConfigError(Str(place, " is a loss; give it as loss = nn.", layer.type, "{...}"));
  }
  if (LooksLikeIndex(layer.name)) {
    throw ConfigError(Str(place, ": the name \"", layer.name, "\" looks like a layer's index"));
  }
}

/// Removes the names of functions that occur more than once. A function is named after its variable
/// and may be used at several places of the list; its uses are told apart by index.
void DropNamesOfFunctions(std::vector<LayerSpec>& layers) {
  std::map<std::string, int> count;
  for (const LayerSpec& layer : layers) ++count[layer.name];
  for (LayerSpec& layer : layers) {
    const bool is_function = layer.scripted && layer.type == "function";
    if (is_function && count[layer.name] > 1) layer.name.clear();
  }
}

void CheckNames(const std::vector<LayerSpec>& layers) {
  std::map<std::string, size_t> first;
  for (size_t i = 0; i < layers.size(); ++i) {
    if (layers[i].name.empty()) continue;
    const auto [entry, is_new] = first.emplace(layers[i].name, i);
    if (is_new) continue;
    throw ConfigError(Str(Place(layers[i].where), "layers ", entry->second, " and ", i,
                          " have the same name \"", layers[i].name, "\""));
  }
}

void CheckCuts(const LayerList& list, const std::string& where) {
  const auto size = static_cast<int>(list.layers.size());
  for (size_t i = 0; i < list.cuts.size(); ++i) {
    const int cut = list.cuts[i];
    const char* wrong = cut == 0                           ? "before the first layer"
                        : cut == size                      ? "behind the last layer"
                        : i > 0 && cut == list.cuts[i - 1] ? "twice at one place"
                                                           : nullptr;
    if (wrong) throw ConfigError(Str(Place(where), "layers: strata.cut() stands ", wrong));
  }
}

}  // namespace

LayerList FlattenLayers(const RawLayer& raw, const std::string& where) {
  LayerList list;
  const bool is_sequential =
      raw.kind == RawLayer::Kind::kLayer && !raw.layer.scripted && raw.layer.type == "Sequential";
  if (is_sequential) {
    list.layers = raw.layer.children;
  } else {
    Add(raw, list);
  }
  if (list.layers.empty()) {
    throw ConfigError(Str(Place(where), "the job needs layers: a list with at least one layer"));
  }
  for (size_t i = 0; i < list.layers.size(); ++i) CheckLayer(list.layers[i], i);
  DropNamesOfFunctions(list.layers);
  CheckNames(list.layers);
  FindConnections(list.layers);
  CheckTies(list.layers);
  CheckCuts(list, where);
  return list;
}

}  // namespace strata
