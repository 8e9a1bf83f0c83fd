#include "engine/spec/optimizer.h"

#include <algorithm>
#include <regex>

#include "engine/base/check.h"
#include "engine/spec/job_fields.h"
#include "engine/spec/select.h"

namespace strata {
namespace {

constexpr const char* kSubject = "optimizer.groups";

bool Takes(const ParameterGroup& group, const std::vector<LayerSpec>& layers, int layer,
           const std::string& parameter) {
  if (!group.layers.items.empty()) {
    const std::vector<int> selected = SelectLayers(group.layers, layers, kSubject);
    if (!std::binary_search(selected.begin(), selected.end(), layer)) return false;
  }
  return group.parameters.empty() ||
         std::regex_search(parameter, CompileRegex(group.parameters, kSubject));
}

}  // namespace

int FindParameterGroup(const OptimizerSpec& optimizer, const std::vector<LayerSpec>& layers,
                       int layer, const std::string& parameter) {
  for (size_t i = 0; i < optimizer.groups.size(); ++i) {
    if (Takes(optimizer.groups[i], layers, layer, parameter)) return static_cast<int>(i);
  }
  return -1;
}

void CheckParameterGroups(const OptimizerSpec& optimizer, const std::vector<LayerSpec>& layers) {
  for (const ParameterGroup& group : optimizer.groups) {
    SelectLayers(group.layers, layers, kSubject);
    CompileRegex(group.parameters, kSubject);
  }
}

int CountMoments(const OptimizerSpec& optimizer) {
  const auto type = std::ranges::find(OptimizerTypes(), optimizer.type, &OptionTable::name);
  STRATA_CHECK(type != OptimizerTypes().end()) << optimizer.type;
  return type->moments(optimizer.options);
}

Value GroupOptions(const OptimizerSpec& optimizer, int group) {
  Value options = optimizer.options;
  if (group < 0) return options;
  for (const auto& [name, value] : optimizer.groups[static_cast<size_t>(group)].options.as_map()) {
    options.Set(name, value);
  }
  return options;
}

}  // namespace strata
