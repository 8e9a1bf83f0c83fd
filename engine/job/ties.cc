// Layers with the same tied_key form a tie. Each use is compared with the first one: the shared
// parameters must exist and have equal shapes and dtypes, and freezing and optimizer options must
// treat all uses alike, since they are one tensor.
#include "engine/job/ties.h"

#include <algorithm>
#include <map>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/job/parameter_groups.h"
#include "engine/layers/layer_types.h"
#include "engine/layers/own_type.h"

namespace strata {
namespace {

std::string Title(const std::vector<LayerSpec>& layers, int index) {
  return Str("layer ", index, " ", layers[static_cast<size_t>(index)].ToString());
}

[[noreturn]] void Refuse(const std::vector<LayerSpec>& layers, int index, const std::string& why) {
  const LayerSpec& layer = layers[static_cast<size_t>(index)];
  throw ConfigError(Str(Place(layer.where), "strata.tied{\"", layer.tied_key, "\"}: ", why));
}

[[noreturn]] void RefuseOneOf(const std::vector<LayerSpec>& layers, int first, int index,
                              std::string_view subject) {
  Refuse(layers, index,
         Str(subject, " names only one of ", Title(layers, first), " and ", Title(layers, index),
             ", which share a tensor; name both"));
}

void RefuseNested(const LayerSpec& outer, const LayerSpec& layer) {
  if (!layer.tied_key.empty()) {
    throw ConfigError(Str(Place(layer.where), "strata.tied{\"", layer.tied_key,
                          "\"} stands inside ", outer.type, "; tie the whole ", outer.type,
                          " and name the tensor, such as weight=\"0.weight\""));
  }
  for (const LayerSpec& child : layer.children) RefuseNested(outer, child);
}

/// The parameters that the layer shares. Throws ConfigError for a name that the layer does not
/// have.
std::vector<ParameterSpec> SharedBy(const std::vector<LayerSpec>& layers, int index) {
  const LayerSpec& layer = layers[static_cast<size_t>(index)];
  std::vector<ParameterSpec> parameters = ParametersOf(layer);
  std::erase_if(parameters, [](const ParameterSpec& p) { return p.buffer; });
  std::vector<std::string> names;
  for (const ParameterSpec& parameter : parameters) names.push_back(parameter.name);
  std::vector<ParameterSpec> shared;
  for (const std::string& name : layer.tied_weights) {
    const auto found = std::ranges::find(parameters, name, &ParameterSpec::name);
    if (found == parameters.end()) {
      Refuse(layers, index,
             Str(Title(layers, index), " has no parameter \"", name, "\"",
                 DidYouMean(name, names, names.size())));
    }
    shared.push_back(*found);
  }
  return shared;
}

void CheckTie(const std::vector<LayerSpec>& layers, const Tie& tie) {
  const int first = tie.layers.front();
  const std::vector<ParameterSpec> expected = SharedBy(layers, first);
  for (const int index : tie.layers) {
    const std::vector<ParameterSpec> shared = SharedBy(layers, index);
    if (shared.size() != expected.size()) {
      Refuse(layers, index,
             Str(Title(layers, index), " shares ", Plural(shared.size(), "tensor"), ", ",
                 Title(layers, first), " shares ", expected.size()));
    }
    for (size_t i = 0; i < shared.size(); ++i) {
      if (OwnType(layers[static_cast<size_t>(index)]) !=
          OwnType(layers[static_cast<size_t>(first)])) {
        Refuse(layers, index,
               Str(Title(layers, index), " and ", Title(layers, first),
                   " share a tensor, so that dtype must be the same for both"));
      }
      if (shared[i].shape == expected[i].shape && shared[i].dtype == expected[i].dtype) continue;
      Refuse(layers, index,
             Str(Title(layers, index), "'s ", shared[i].name, " has the shape ",
                 FormatShape(shared[i].shape), ", ", Title(layers, first), "'s ", expected[i].name,
                 " has ", FormatShape(expected[i].shape)));
    }
  }
}

}  // namespace

std::vector<Tie> FindTies(const std::vector<LayerSpec>& layers) {
  std::map<std::string, std::vector<int>> uses;
  for (size_t i = 0; i < layers.size(); ++i) {
    if (!layers[i].tied_key.empty()) uses[layers[i].tied_key].push_back(static_cast<int>(i));
  }
  std::vector<Tie> ties;
  for (auto& [key, indices] : uses) ties.push_back({key, std::move(indices)});
  return ties;
}

void CheckTies(const std::vector<LayerSpec>& layers) {
  for (const LayerSpec& layer : layers) {
    for (const LayerSpec& child : layer.children) RefuseNested(layer, child);
  }
  for (const Tie& tie : FindTies(layers)) CheckTie(layers, tie);
}

void CheckWholeTies(const std::vector<LayerSpec>& layers, const std::vector<int>& chosen,
                    std::string_view subject) {
  for (const Tie& tie : FindTies(layers)) {
    const int first = tie.layers.front();
    const bool has_first = std::ranges::binary_search(chosen, first);
    for (const int index : tie.layers) {
      if (std::ranges::binary_search(chosen, index) == has_first) continue;
      RefuseOneOf(layers, first, index, subject);
    }
  }
}

void CheckTieOptions(const Job& job) {
  const std::vector<LayerSpec>& layers = job.layers;
  for (const Tie& tie : FindTies(layers)) {
    const int first = tie.layers.front();
    const LayerSpec& head = layers[static_cast<size_t>(first)];
    for (const int index : tie.layers) {
      const LayerSpec& layer = layers[static_cast<size_t>(index)];
      for (size_t i = 0; i < layer.tied_weights.size(); ++i) {
        const bool is_frozen = layer.IsFrozen(layer.tied_weights[i]);
        if (is_frozen != head.IsFrozen(head.tied_weights[i])) {
          RefuseOneOf(layers, first, index, "freeze");
        }
        if (is_frozen != head.IsFrozen(head.tied_weights[0])) {
          Refuse(layers, index,
                 Str("freeze names only some of the tensors that ", Title(layers, first), " and ",
                     Title(layers, index), " share; name all"));
        }
        const int group = FindParameterGroup(job.optimizer, layers, index, layer.tied_weights[i]);
        if (group == FindParameterGroup(job.optimizer, layers, first, head.tied_weights[i])) {
          continue;
        }
        Refuse(layers, index,
               Str("the optimizer's groups treat ", Title(layers, first), " and ",
                   Title(layers, index), ", which share a tensor, differently"));
      }
    }
  }
}

}  // namespace strata
