// Finds the group of each parameter, by layer, name and number of dims, and the options and state
// that follow from it. The first group that takes a parameter is used. Conditions are evaluated
// anew for each parameter, since groups and layers are few.
#include "engine/job/parameter_groups.h"

#include <algorithm>
#include <iterator>
#include <regex>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/job/job_fields.h"
#include "engine/job/select.h"
#include "engine/layers/layer_types.h"

namespace strata {
namespace {

constexpr const char* kSubject = "optimizer.groups";

using Comparison = bool (*)(int64_t, int64_t);

/// A sign that begins with another one stands before it, since the first match is taken.
constexpr std::pair<const char*, Comparison> kComparisons[] = {
    {"<=", [](int64_t a, int64_t b) { return a <= b; }},
    {">=", [](int64_t a, int64_t b) { return a >= b; }},
    {"==", [](int64_t a, int64_t b) { return a == b; }},
    {"!=", [](int64_t a, int64_t b) { return a != b; }},
    {"<", [](int64_t a, int64_t b) { return a < b; }},
    {">", [](int64_t a, int64_t b) { return a > b; }},
};

/// True if the number of dims fulfils the condition `dims`, a result of ParseDims().
bool HasDims(const ParameterSpec& parameter, const std::string& dims) {
  if (dims.empty()) return true;
  const auto comparison =
      std::ranges::find_if(kComparisons, [&](const auto& c) { return dims.starts_with(c.first); });
  STRATA_CHECK(comparison != std::end(kComparisons)) << "dims " << dims;
  const std::string number = dims.substr(std::string_view(comparison->first).size());
  return comparison->second(static_cast<int64_t>(parameter.shape.size()), std::stoll(number));
}

/// The name of a parameter in saves. A tied parameter has the name of its first use.
std::string NameOf(const std::vector<LayerSpec>& layers, int layer, const std::string& parameter) {
  const LayerSpec& spec = layers[static_cast<size_t>(layer)];
  const auto tied = std::ranges::find(spec.tied_weights, parameter);
  if (spec.tied_key.empty() || tied == spec.tied_weights.end()) {
    return LayerPath(spec, layer) + "." + parameter;
  }
  const auto first = std::ranges::find(layers, spec.tied_key, &LayerSpec::tied_key);
  const auto place = static_cast<size_t>(tied - spec.tied_weights.begin());
  return LayerPath(*first, static_cast<int>(first - layers.begin())) + "." +
         first->tied_weights.at(place);
}

bool Takes(const ParameterGroup& group, const std::vector<LayerSpec>& layers,
           const NamedParameter& place) {
  if (!group.layers.items.empty()) {
    const std::vector<int> selected = SelectLayers(group.layers, layers, kSubject);
    if (!std::binary_search(selected.begin(), selected.end(), place.layer)) return false;
  }
  if (!HasDims(place.spec, group.dims)) return false;
  return group.parameters.empty() ||
         std::regex_search(place.name, CompileRegex(group.parameters, kSubject));
}

/// The conditions of a group, for messages: "layers 0, 3; parameters \"bias\"; dims <2".
std::string Describe(const ParameterGroup& group) {
  std::vector<std::string> parts;
  std::vector<std::string> items;
  for (const Value& item : group.layers.items) {
    items.push_back(item.is_string() ? Str("\"", item.as_string(), "\"") : Str(item.as_int()));
  }
  if (!items.empty()) parts.push_back("layers " + Join(items, ", "));
  if (!group.parameters.empty()) parts.push_back(Str("parameters \"", group.parameters, "\""));
  if (!group.dims.empty()) parts.push_back(Str("dims ", group.dims));
  return Join(parts, "; ");
}

/// Refuses a group that matches no parameter, and lists the parameters.
[[noreturn]] void RefuseIdle(const ParameterGroup& group, size_t number,
                             const std::vector<NamedParameter>& places) {
  constexpr size_t kShown = 12;
  std::vector<std::string> names;
  for (const NamedParameter& place : places) {
    names.push_back(Str(place.name, " ", FormatShape(place.spec.shape)));
  }
  const size_t all = names.size();
  std::vector<std::string> bare;
  for (const NamedParameter& place : places) bare.push_back(place.name);
  const std::string nearest = group.parameters.empty() ? "" : Nearest(group.parameters, bare);
  names.resize(std::min(all, kShown));
  throw ConfigError(
      Str(kSubject, ": group ", number, " (", Describe(group), ") holds for no parameter",
          nearest.empty() ? "" : Str("; did you mean \"", nearest, "\"?"), "; the parameters are ",
          Join(names, ", "), all > kShown ? Str(" and ", all - kShown, " more") : ""));
}

int MomentsOf(const OptimizerSpec& optimizer, int group) {
  const OptionTable& type = FindOptimizerType(GroupType(optimizer, group));
  const size_t names = type.moments(GroupOptions(optimizer, group)).size();
  return static_cast<int>(names) + (optimizer.ema > 0 ? 1 : 0);
}

/// The state elements of Adafactor for one parameter: for a matrix the means of the squares over
/// rows and over columns; for a vector one per element.
int64_t FactoredElements(const std::vector<int64_t>& shape) {
  int64_t others = 1;
  if (shape.size() < 2) return shape.empty() ? 1 : shape[0];
  for (size_t dim = 0; dim + 2 < shape.size(); ++dim) others *= shape[dim];
  return others * (shape[shape.size() - 2] + shape.back());
}

/// Throws ConfigError for a parameter that the optimizer of its group cannot update.
void CheckShapes(const OptimizerSpec& optimizer, const std::vector<LayerSpec>& layers, int layer) {
  for (const NamedParameter& place : NamedParametersOf(layers, layer)) {
    if (layers[static_cast<size_t>(layer)].IsFrozen(place.spec.name)) continue;
    const int group = FindParameterGroup(optimizer, layers, layer, place.spec.name);
    const OptionTable& type = FindOptimizerType(GroupType(optimizer, group));
    if (type.sees != OptionTable::Sees::kMatrices || place.spec.shape.size() == 2) continue;
    throw ConfigError(Str("optimizer ", type.name, " updates matrices, and ", place.name, " is ",
                          FormatShape(place.spec.shape),
                          ": give such parameters another optimizer, as groups = "
                          "{{\"adamw\", dims=\"!=2\", lr=...}}"));
  }
}

}  // namespace

std::vector<NamedParameter> NamedParametersOf(const std::vector<LayerSpec>& layers, int layer) {
  std::vector<NamedParameter> places;
  for (ParameterSpec& spec : ParametersOf(layers[static_cast<size_t>(layer)])) {
    if (spec.buffer) continue;
    std::string name = NameOf(layers, layer, spec.name);
    places.push_back({layer, std::move(name), std::move(spec)});
  }
  return places;
}

std::string ParseDims(const Value& value) {
  if (value.is_null()) return "";
  std::string text = value.is_string() ? value.as_string() : value.ToJson();
  std::erase(text, ' ');
  if (text.find_first_not_of("0123456789") == std::string::npos) text = "==" + text;
  static const std::regex form("(<=|>=|==|!=|<|>)[0-9]{1,3}");
  if (std::regex_match(text, form)) return text;
  throw ConfigError(Str(kSubject,
                        ": dims expects a number of dims, or a comparison such as \"<2\" ",
                        "or \">=2\"; got ", value.Describe()));
}

int FindParameterGroup(const OptimizerSpec& optimizer, const std::vector<LayerSpec>& layers,
                       int layer, const std::string& parameter) {
  if (optimizer.groups.empty()) return -1;
  const std::vector<NamedParameter> places = NamedParametersOf(layers, layer);
  const auto place =
      std::ranges::find(places, parameter, [](const NamedParameter& p) { return p.spec.name; });
  STRATA_CHECK(place != places.end()) << "layer " << layer << " has no " << parameter;
  for (size_t i = 0; i < optimizer.groups.size(); ++i) {
    if (Takes(optimizer.groups[i], layers, *place)) return static_cast<int>(i);
  }
  return -1;
}

void CheckParameterGroups(const OptimizerSpec& optimizer, const std::vector<LayerSpec>& layers) {
  std::vector<NamedParameter> places;
  for (size_t i = 0; i < layers.size() && !optimizer.groups.empty(); ++i) {
    std::ranges::move(NamedParametersOf(layers, static_cast<int>(i)), std::back_inserter(places));
  }
  for (size_t i = 0; i < optimizer.groups.size(); ++i) {
    const ParameterGroup& group = optimizer.groups[i];
    SelectLayers(group.layers, layers, kSubject);
    CompileRegex(group.parameters, kSubject);
    const auto takes = [&](const NamedParameter& place) { return Takes(group, layers, place); };
    if (std::ranges::none_of(places, takes)) RefuseIdle(group, i + 1, places);
  }
  if (SeesAtOnce(optimizer) != OptionTable::Sees::kMatrices) return;
  for (size_t i = 0; i < layers.size(); ++i) CheckShapes(optimizer, layers, static_cast<int>(i));
}

const std::string& GroupType(const OptimizerSpec& optimizer, int group) {
  const std::string* own = group < 0 ? nullptr : &optimizer.groups[static_cast<size_t>(group)].type;
  return own && !own->empty() ? *own : optimizer.type;
}

OptionTable::Sees SeesAtOnce(const OptimizerSpec& optimizer) {
  OptionTable::Sees most = OptionTable::Sees::kElements;
  for (int group = -1; group < static_cast<int>(optimizer.groups.size()); ++group) {
    most = std::max(most, FindOptimizerType(GroupType(optimizer, group)).sees);
  }
  return most;
}

void CheckWholeParameters(const Job& job) {
  if (SeesAtOnce(job.optimizer) == OptionTable::Sees::kElements) return;
  const std::string cuts = job.zero > 0             ? Str("zero = ", job.zero)
                           : job.parallel.model > 1 ? "the model axis"
                                                    : "";
  if (cuts.empty()) return;
  throw ConfigError(Str("optimizer ", job.optimizer.type, ": its update needs whole parameters, ",
                        "which ", cuts, " cuts into shares; use zero = 0 and model = 1, or ",
                        "another optimizer"));
}

int CountMoments(const OptimizerSpec& optimizer) { return MomentsOf(optimizer, -1); }

int64_t ExtraState(const OptimizerSpec& optimizer, const std::vector<LayerSpec>& layers, int layer,
                   const ParameterSpec& parameter, DType type) {
  const int group = FindParameterGroup(optimizer, layers, layer, parameter.name);
  int64_t elements =
      (MomentsOf(optimizer, group) - MomentsOf(optimizer, -1)) * parameter.elements();
  if (GroupType(optimizer, group) == "adafactor") elements += FactoredElements(parameter.shape);
  // The average is in float32, and evaluations keep the current values beside it: two more
  // elements.
  if (optimizer.ema > 0 && DTypeSize(type) == 2) elements += 2 * parameter.elements();
  return elements;
}

Value GroupOptions(const OptimizerSpec& optimizer, int group) {
  if (group < 0) return optimizer.options;
  const ParameterGroup& own = optimizer.groups[static_cast<size_t>(group)];
  return own.type.empty() ? Merged(optimizer.options, own.options) : own.options;
}

}  // namespace strata
