// A selection is a set of whole layers, and for other layers the names of single parameters.
// Freeze() reads it from the key, marks a layer as frozen if all its parameters are chosen, and
// otherwise stores the names and marks the inner parts in which nothing learns.
#include "engine/job/freeze.h"

#include <algorithm>
#include <regex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/job/parameter_groups.h"
#include "engine/job/select.h"
#include "engine/layers/layer_types.h"
#include "engine/layers/parts.h"

namespace strata {
namespace {

/// The layers for which function({index, type, name}) returns true.
std::vector<int> ChosenBy(const JobKeys& keys, const FunctionRef& function,
                          const std::vector<LayerSpec>& layers) {
  std::vector<int> chosen;
  for (size_t i = 0; i < layers.size(); ++i) {
    const auto index = static_cast<int>(i);
    const Value answer = keys.Ask(
        "freeze", function,
        {Value::MakeMap(
            {{"index", index}, {"type", layers[i].type}, {"name", LayerPath(layers[i], index)}})});
    if (!answer.is_bool()) {
      throw ConfigError(Str(Place(function.where), "freeze expects its function to return true or ",
                            "false; got ", answer.Describe(), " for layer ", i));
    }
    if (answer.as_bool()) chosen.push_back(static_cast<int>(i));
  }
  return chosen;
}

constexpr std::string_view kParametersPrefix = "parameters:";

/// Escapes a text into a regular expression that matches exactly this text.
std::string WithoutSigns(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (std::string_view(".*+?^$()[]{}|\\").find(c) != std::string_view::npos) escaped += '\\';
    escaped += c;
  }
  return escaped;
}

/// For each layer, the names of chosen parameters within the layer.
using ChosenParameters = std::vector<std::vector<std::string>>;

/// The result of a selector: whole layers, and single parameters of other layers.
struct Selection {
  std::vector<int> layers;
  ChosenParameters parameters;
};

std::vector<std::string> NamesOf(const std::vector<LayerSpec>& layers, int layer) {
  std::vector<std::string> names;
  for (const NamedParameter& place : NamedParametersOf(layers, layer)) {
    names.push_back(place.spec.name);
  }
  return names;
}

/// Adds the parameters whose name in saves contains a match of the regular expression.
void ChooseParameters(std::string_view regex, const std::vector<LayerSpec>& layers,
                      std::string_view subject, ChosenParameters& chosen) {
  const std::regex expression = CompileRegex(regex, subject);
  bool matches = false;
  std::vector<std::string> known;
  for (size_t i = 0; i < layers.size(); ++i) {
    for (const NamedParameter& place : NamedParametersOf(layers, static_cast<int>(i))) {
      known.push_back(place.name);
      if (!std::regex_search(place.name, expression)) continue;
      matches = true;
      std::vector<std::string>& names = chosen[i];
      if (std::ranges::find(names, place.spec.name) == names.end()) {
        names.push_back(place.spec.name);
      }
    }
  }
  if (matches) return;
  std::string hint = DidYouMean(regex, known, 8);
  if (hint.empty() && !known.empty()) hint = Str("; names are as ", known.front());
  throw ConfigError(Str(subject, ": no parameter's name matches \"", regex, "\"", hint));
}

Selection Choose(const LayerSelector& selector, const std::vector<LayerSpec>& layers,
                 std::string_view subject) {
  LayerSelector whole;
  Selection selection;
  selection.parameters.resize(layers.size());
  for (const Value& item : selector.items) {
    const bool is_regex = item.is_string() && item.as_string().starts_with(kParametersPrefix);
    if (!is_regex) {
      whole.items.push_back(item);
      continue;
    }
    ChooseParameters(std::string_view(item.as_string()).substr(kParametersPrefix.size()), layers,
                     subject, selection.parameters);
  }
  selection.layers = SelectLayers(whole, layers, subject);
  return selection;
}

/// Everything that `selection` does not choose.
Selection AllBut(const Selection& selection, const std::vector<LayerSpec>& layers) {
  Selection others;
  others.parameters.resize(layers.size());
  for (size_t i = 0; i < layers.size(); ++i) {
    const auto layer = static_cast<int>(i);
    if (std::ranges::binary_search(selection.layers, layer)) continue;
    const std::vector<std::string>& chosen = selection.parameters[i];
    if (chosen.empty()) {
      others.layers.push_back(layer);
      continue;
    }
    for (const std::string& name : NamesOf(layers, layer)) {
      if (std::ranges::find(chosen, name) == chosen.end()) others.parameters[i].push_back(name);
    }
  }
  return others;
}

/// Marks a layer and all layers inside it as frozen.
void FreezeWhole(LayerSpec& layer) {
  layer.frozen = true;
  for (LayerSpec& child : layer.children) FreezeWhole(child);
}

/// Sets `frozen` for the parts of a layer in which no parameter learns, and `frozen_parameters` for
/// those in which some do, so that the costs of these parts are predicted correctly. `paths` are
/// the places of `layer` within `whole`: "" or "layers.0.", one for each copy in a stack. A
/// parameter of a stack's layer counts as frozen if it is frozen in every copy.
void FreezeParts(const LayerSpec& whole, LayerSpec& layer, const std::vector<std::string>& paths) {
  for (size_t i = 0; i < layer.children.size(); ++i) {
    LayerSpec& part = layer.children[i];
    std::vector<std::string> inside;
    for (const std::string& path : paths) {
      for (const std::string& child : ChildPaths(layer, static_cast<int>(i))) {
        inside.push_back(Str(path, child, "."));
      }
    }
    std::vector<std::string> frozen;
    size_t all = 0;
    for (const ParameterSpec& parameter : ParametersOf(part)) {
      if (parameter.buffer) continue;
      ++all;
      const bool is_frozen = std::ranges::all_of(
          inside, [&](const std::string& path) { return whole.IsFrozen(path + parameter.name); });
      if (is_frozen) frozen.push_back(parameter.name);
    }
    if (frozen.empty()) continue;
    if (frozen.size() == all) {
      FreezeWhole(part);
      continue;
    }
    part.frozen_parameters = std::move(frozen);
    FreezeParts(whole, part, inside);
  }
}

/// The selection as a selector in canonical form: indices of layers, then a regular expression per
/// parameter.
LayerSelector SelectorOf(const Selection& selection, const std::vector<LayerSpec>& layers) {
  LayerSelector selector{
      Value::IntList({selection.layers.begin(), selection.layers.end()}).as_list()};
  for (size_t i = 0; i < layers.size(); ++i) {
    for (const NamedParameter& place : NamedParametersOf(layers, static_cast<int>(i))) {
      const std::vector<std::string>& names = selection.parameters[i];
      if (std::ranges::find(names, place.spec.name) == names.end()) continue;
      selector.items.push_back(Str(kParametersPrefix, "^", WithoutSigns(place.name), "$"));
    }
  }
  return selector;
}

/// Reads `freeze`: layers and parameters, a function(layer) -> boolean, or {except=...}, which
/// means everything else.
Selection ReadFreeze(const JobKeys& keys, Job& job) {
  const Value& value = keys["freeze"];
  const std::vector<LayerSpec>& layers = job.layers;
  if (value.is_function()) {
    const std::vector<int> chosen = ChosenBy(keys, value.as_function(), layers);
    job.freeze = {Value::IntList({chosen.begin(), chosen.end()}).as_list()};
    return {chosen, ChosenParameters(layers.size())};
  }
  if (!value.is_map() || !value.Has("except")) {
    job.freeze = ReadSelector(value);
    return keys.Placed([&] { return Choose(job.freeze, layers, "freeze"); });
  }
  static const FieldTable fields = {Field::Any("except", "layers and parameters that learn")};
  const Value table = Canonicalize(fields, keys.CallFor("the job's freeze", value));
  const Selection kept =
      keys.Placed([&] { return Choose(ReadSelector(table["except"]), layers, "freeze.except"); });
  const Selection others = AllBut(kept, layers);
  job.freeze = SelectorOf(others, layers);
  return others;
}

}  // namespace

void Freeze(const JobKeys& keys, Job& job) {
  Selection selection = ReadFreeze(keys, job);
  for (int index : selection.layers) FreezeWhole(job.layers[static_cast<size_t>(index)]);
  for (size_t i = 0; i < job.layers.size(); ++i) {
    LayerSpec& layer = job.layers[i];
    std::vector<std::string>& names = selection.parameters[i];
    if (!layer.frozen && !names.empty()) FreezeParameters(layer, std::move(names));
  }
}

void FreezeParameters(LayerSpec& layer, std::vector<std::string> names) {
  const std::vector<ParameterSpec> all = ParametersOf(layer);
  const auto learnable = std::ranges::count(all, false, &ParameterSpec::buffer);
  if (std::ssize(names) == learnable) return FreezeWhole(layer);
  layer.frozen_parameters = std::move(names);
  FreezeParts(layer, layer, {""});
}

}  // namespace strata
