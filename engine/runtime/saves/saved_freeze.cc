#include "engine/runtime/saves/saved_freeze.h"

#include <algorithm>
#include <map>
#include <set>

#include "engine/base/text.h"
#include "engine/job/parameter_groups.h"
#include "engine/layers/layer_types.h"

namespace strata {
namespace {

/// The layers of a job in its canonical form, by layer path.
std::map<std::string, const Value*> LayersByPath(const Value& job) {
  std::map<std::string, const Value*> layers;
  const Value& list = job["layers"];
  if (!list.is_list()) return layers;
  for (size_t i = 0; i < list.as_list().size(); ++i) {
    const Value& layer = list.as_list()[i];
    if (!layer.is_map() || !layer["frozen"].is_bool()) continue;
    const Value& name = layer["name"];
    const bool is_named = name.is_string() && !name.as_string().empty();
    layers[is_named ? name.as_string() : std::to_string(i)] = &layer;
  }
  return layers;
}

/// LayerSpec::IsFrozen() for a layer in its canonical form.
bool WasFrozen(const Value& layer, const std::string& parameter) {
  if (layer["frozen"].as_bool()) return true;
  const Value& names = layer["frozen_parameters"];
  return names.is_list() &&
         std::ranges::find(names.as_list(), Value(parameter)) != names.as_list().end();
}

bool Has(const std::vector<std::string>& names, std::string_view moment) {
  const std::string_view parameter = ParameterOf(moment);
  return !parameter.empty() && std::ranges::find(names, parameter) != names.end();
}

std::string Listed(std::vector<std::string> names) {
  constexpr size_t kShown = 8;
  const size_t all = names.size();
  names.resize(std::min(all, kShown));
  return Join(names, ", ") + (all > kShown ? Str(" and ", all - kShown, " more") : "");
}

}  // namespace

bool FreezeChange::Begins(std::string_view moment) const { return Has(begins, moment); }
bool FreezeChange::Stops(std::string_view moment) const { return Has(stops, moment); }

std::vector<std::string> FreezeChange::Notes() const {
  std::vector<std::string> notes;
  if (!begins.empty()) {
    notes.push_back(Str("these parameters were frozen in the save and learn from now on; their ",
                        "moments begin at zero and their steps count from 1: ", Listed(begins)));
  }
  if (!stops.empty()) {
    notes.push_back(Str("these parameters learnt in the save and are frozen from now on; their ",
                        "moments are dropped: ", Listed(stops)));
  }
  return notes;
}

std::string_view ParameterOf(std::string_view moment) {
  const size_t end = moment.rfind('#');
  return end == moment.npos ? std::string_view() : moment.substr(0, end);
}

FreezeChange ChangeOfFreeze(const Value& saved_job, const std::vector<LayerSpec>& layers) {
  FreezeChange change;
  const std::map<std::string, const Value*> before = LayersByPath(saved_job);
  std::set<std::string> known;  // layers may share a parameter, and so its name
  for (size_t i = 0; i < layers.size(); ++i) {
    const auto index = static_cast<int>(i);
    const auto saved = before.find(LayerPath(layers[i], index));
    if (saved == before.end()) continue;
    for (const NamedParameter& place : NamedParametersOf(layers, index)) {
      const bool is_frozen = layers[i].IsFrozen(place.spec.name);
      const bool was_frozen = WasFrozen(*saved->second, place.spec.name);
      if (is_frozen == was_frozen || !known.insert(place.name).second) continue;
      (is_frozen ? change.stops : change.begins).push_back(place.name);
    }
  }
  return change;
}

BeganSteps BeganWith(const TrainingState& saved, const FreezeChange& change) {
  BeganSteps began = saved.began;
  for (const std::string& name : change.stops) began.erase(name);
  const int64_t done = saved.step - saved.skipped;
  for (const std::string& name : change.begins) {
    if (done > 0) began[name] = done;
  }
  return began;
}

}  // namespace strata
