#include "engine/spec/job/parameter_groups.h"

#include <algorithm>
#include <iterator>
#include <regex>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/spec/job/job_fields.h"
#include "engine/spec/job/select.h"
#include "engine/spec/layers/layers.h"

namespace strata {
namespace {

constexpr const char* kSubject = "optimizer.groups";

using Comparison = bool (*)(int64_t, int64_t);

/// Longer signs before those that begin them.
constexpr std::pair<const char*, Comparison> kComparisons[] = {
    {"<=", [](int64_t a, int64_t b) { return a <= b; }},
    {">=", [](int64_t a, int64_t b) { return a >= b; }},
    {"==", [](int64_t a, int64_t b) { return a == b; }},
    {"<", [](int64_t a, int64_t b) { return a < b; }},
    {">", [](int64_t a, int64_t b) { return a > b; }},
};

/// `dims`: what ParseDims() gave.
bool HasDims(const ParameterSpec& parameter, const std::string& dims) {
  if (dims.empty()) return true;
  const auto comparison =
      std::ranges::find_if(kComparisons, [&](const auto& c) { return dims.starts_with(c.first); });
  STRATA_CHECK(comparison != std::end(kComparisons)) << "dims " << dims;
  const std::string number = dims.substr(std::string_view(comparison->first).size());
  return comparison->second(static_cast<int64_t>(parameter.shape.size()), std::stoll(number));
}

/// What saves call it: a tied parameter has the name of its first use.
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

/// One parameter of the model.
struct NamedParameter {
  int layer;
  std::string name;  ///< in saves
  ParameterSpec spec;
};

std::vector<NamedParameter> NamedParametersOf(const std::vector<LayerSpec>& layers, int layer) {
  std::vector<NamedParameter> places;
  for (ParameterSpec& spec : ParametersOf(layers[static_cast<size_t>(layer)])) {
    if (spec.buffer) continue;
    std::string name = NameOf(layers, layer, spec.name);
    places.push_back({layer, std::move(name), std::move(spec)});
  }
  return places;
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

/// "layers 0, 3; parameters \"bias\"; dims <2".
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

/// With the names that there are.
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

}  // namespace

std::string ParseDims(const Value& value) {
  if (value.is_null()) return "";
  std::string text = value.is_string() ? value.as_string() : value.ToJson();
  std::erase(text, ' ');
  if (text.find_first_not_of("0123456789") == std::string::npos) text = "==" + text;
  static const std::regex form("(<=|>=|==|<|>)[0-9]{1,3}");
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
}

int CountMoments(const OptimizerSpec& optimizer) {
  const auto type = std::ranges::find(OptimizerTypes(), optimizer.type, &OptionTable::name);
  STRATA_CHECK(type != OptimizerTypes().end()) << optimizer.type;
  return type->moments(optimizer.options);
}

Value GroupOptions(const OptimizerSpec& optimizer, int group) {
  if (group < 0) return optimizer.options;
  return Merged(optimizer.options, optimizer.groups[static_cast<size_t>(group)].options);
}

}  // namespace strata
