#include "engine/layers/connections.h"

#include <algorithm>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/layers/parts.h"

namespace strata {
namespace {

bool IsSkip(const LayerSpec& layer) { return !layer.scripted && layer.type == "skip"; }
bool IsDocuments(const LayerSpec& layer) { return !layer.scripted && layer.type == "documents"; }
bool IsJoin(const LayerSpec& layer) { return !layer.scripted && layer.type == "join"; }

std::string Subject(const std::vector<LayerSpec>& layers, int index) {
  return Str(Place(layers[index].where), "layer ", LayerNumber(layers, index), " ",
             layers[index].ToString());
}

/// The first skip or join inside of the layer; null if there is none.
const LayerSpec* FindInside(const LayerSpec& layer) {
  for (const LayerSpec& child : layer.children) {
    if (IsSkip(child) || IsJoin(child) || IsDocuments(child)) return &child;
    if (const LayerSpec* inside = FindInside(child)) return inside;
  }
  return nullptr;
}

/// Finds the connection of this key, with its join or still without; end() if there is none.
auto FindKey(std::vector<Connection>& connections, const std::string& key) {
  return std::ranges::find_if(connections, [&](const Connection& connection) {
    return connection.key == key && !connection.of_documents;
  });
}

void Keep(const std::vector<LayerSpec>& layers, int index, std::vector<Connection>& connections) {
  const std::string& key = layers[index].args["key"].as_string();
  const auto same = FindKey(connections, key);
  if (same != connections.end()) {
    throw ConfigError(Str(Subject(layers, index), ": layer ", LayerNumber(layers, same->from),
                          " keeps a \"", key, "\" already; a key is used once"));
  }
  connections.push_back({key, index, -1});
}

void Take(const std::vector<LayerSpec>& layers, int index, std::vector<Connection>& connections) {
  const std::string& key = layers[index].args["key"].as_string();
  const auto kept = FindKey(connections, key);
  if (kept == connections.end()) {
    std::vector<std::string> keys;
    for (const Connection& connection : connections) keys.push_back(connection.key);
    throw ConfigError(Str(Subject(layers, index), ": no strata.skip{\"", key,
                          "\"} stands before it", DidYouMean(key, keys)));
  }
  if (kept->to >= 0) {
    throw ConfigError(Str(Subject(layers, index), ": layer ", LayerNumber(layers, kept->to),
                          " takes \"", key, "\" already; for two joins write two skips"));
  }
  kept->to = index;
}

}  // namespace

bool HasDocuments(const std::vector<LayerSpec>& layers) {
  return !layers.empty() && IsDocuments(layers[0]);
}

std::vector<Connection> FindConnections(const std::vector<LayerSpec>& layers) {
  std::vector<Connection> connections;
  if (HasDocuments(layers) && layers.size() > 1) {
    connections.push_back({"documents", 0, static_cast<int>(layers.size()) - 1, true});
  }
  for (int i = 0; i < static_cast<int>(layers.size()); ++i) {
    if (i > 0 && IsDocuments(layers[i])) {
      throw ConfigError(Str(Subject(layers, i), " stands in front of all other layers"));
    }
    if (const LayerSpec* inside = FindInside(layers[i])) {
      const Value* key = inside->args.Find("key");
      throw ConfigError(Str(Subject(layers, i), ": strata.", inside->type, "{",
                            key ? Str('"', key->as_string(), '"') : "",
                            "} stands in the job's list of layers, not inside a layer"));
    }
    if (IsSkip(layers[i])) Keep(layers, i, connections);
    if (IsJoin(layers[i])) Take(layers, i, connections);
  }
  for (const Connection& connection : connections) {
    if (connection.to >= 0) continue;
    throw ConfigError(Str(Subject(layers, connection.from), ": no later strata.join{\"",
                          connection.key, "\"} takes it"));
  }
  return connections;
}

std::vector<TensorSpecs> BoundarySpecs(const std::vector<LayerSpec>& layers,
                                       const std::vector<int>& bounds, const TensorSpecs& input,
                                       const std::vector<TensorSpecs>& outputs) {
  const std::vector<Connection> connections = FindConnections(layers);
  std::vector<TensorSpecs> boundaries = {input};
  for (size_t b = 1; b < bounds.size(); ++b) {
    TensorSpecs& specs = boundaries.emplace_back(outputs.at(bounds[b] - 1));
    for (const Connection& connection : connections) {
      if (!Crosses(connection, bounds[b])) continue;
      if (connection.of_documents && !IsPacked(input)) continue;
      const TensorSpecs& kept = outputs.at(connection.from);
      specs.insert(specs.end(), kept.begin(), kept.end());
    }
  }
  return boundaries;
}

}  // namespace strata
