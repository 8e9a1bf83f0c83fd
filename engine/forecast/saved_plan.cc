#include "engine/forecast/saved_plan.h"

#include <algorithm>
#include <set>
#include <type_traits>

#include "engine/base/error.h"
#include "engine/base/fields/checked_map.h"
#include "engine/base/fields/fields.h"
#include "engine/base/text.h"
#include "engine/layers/layer_types.h"
#include "engine/plan/plan_text.h"

namespace strata {
namespace {

/// The first key of every file, and its format.
constexpr char kMark[] = "strata_plan";
constexpr int kFormat = 1;
constexpr double kMostElements = 0x1p52;
constexpr size_t kMostLayers = 1'000'000;

const FieldTable& TopFields() {
  static const FieldTable kFields = {
      Field::Int(kMark, "the file's format").AtLeast(kFormat).AtMost(kFormat),
      Field::String("name", "of the job"),
      Field::Shape("bounds", "the cuts").AtLeast(0),
      Field::Int("pipe", "degree").AtLeast(1),
      Field::Int("data", "degree").AtLeast(1),
      Field::Int("model", "degree").AtLeast(1),
      Field::String("schedule", "its name; \"\" = a file's or a function"),
      Field::Int("stages_per_rank", "stages on each rank").AtLeast(1).AtMost(32767),
      Field::Int("micro_batches", "of a replica").AtLeast(1),
      Field::Int("micro_batch_size", "samples").AtLeast(1),
      Field::Any("layers", "what was cut")};
  return kFields;
}

const FieldTable& LayerFields() {
  static const FieldTable kFields = {
      Field::String("path", "name or index"), Field::String("type", "of the layer"),
      Field::Int("parameters", "elements").AtLeast(0).AtMost(kMostElements)};
  return kFields;
}

/// Returns the name; throws ConfigError if it has control characters, which are not safe on a
/// terminal.
std::string CheckedName(const Value& value, const std::string& what) {
  const std::string& name = value.as_string();
  const bool fits = std::ranges::none_of(
      name, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; });
  if (!fits) throw ConfigError(Str("the saved plan: ", what, " holds control characters"));
  return name;
}

std::vector<SavedPlan::Layer> ParseLayers(const Value& list) {
  if (!list.is_list() || list.as_list().empty() || list.as_list().size() > kMostLayers) {
    throw ConfigError(Str("the saved plan: layers must be a list of 1 to ",
                          FormatCount(kMostLayers), " layers, got ", list.Describe()));
  }
  std::vector<SavedPlan::Layer> layers;
  for (const Value& item : list.as_list()) {
    const std::string subject = Str("the saved plan's layer ", layers.size());
    const Value layer = CheckedMap(LayerFields(), item, subject, "key");
    layers.push_back({CheckedName(layer["path"], "a layer's path"),
                      CheckedName(layer["type"], "a layer's type"), layer["parameters"].as_int()});
  }
  return layers;
}

void CheckBounds(const SavedPlan& plan) {
  const size_t stages = static_cast<size_t>(plan.pipe) * plan.stages_per_rank;
  const std::vector<int>& bounds = plan.bounds;
  const bool ascend = std::ranges::adjacent_find(bounds, std::greater_equal()) == bounds.end();
  const bool fits = bounds.size() == stages + 1 && ascend && bounds.front() == 0 &&
                    bounds.back() == static_cast<int>(plan.layers.size());
  if (fits) return;
  throw ConfigError(Str("the saved plan: bounds must be ", stages + 1,
                        " numbers that ascend from 0 ", "to ", plan.layers.size(),
                        ", the number of layers"));
}

/// Copies the plan's layers and cuts. Parts of a layer that is not cut inside are joined.
void CopyLayers(const Plan& plan, SavedPlan& saved) {
  saved.bounds.clear();
  for (const LayerPlan& layer : ShownLayers(plan)) {
    if (std::ranges::binary_search(plan.bounds, layer.index)) {
      saved.bounds.push_back(static_cast<int>(saved.layers.size()));
    }
    saved.layers.push_back({layer.path, layer.type, layer.parameters + layer.frozen});
  }
  saved.bounds.push_back(static_cast<int>(saved.layers.size()));
}

/// The decisions as texts, by key.
Value::Map TextsOf(const SavedPlan& plan) {
  Value texts;
  texts.Set("bounds", CutNames::Of(plan.layers).Text(plan.bounds, ", "))
      .Set("schedule", plan.schedule);
  VisitNumbers(plan, [&](const char* key, int64_t number) { texts.Set(key, Str(number)); });
  return texts.as_map();
}

void CheckSameLayers(const SavedPlan& a, const SavedPlan& b) {
  if (a.layers.size() == b.layers.size()) return;
  throw ConfigError(Str("the plans cut different lists: of ", a.layers.size(), " and of ",
                        b.layers.size(), " layers"));
}

}  // namespace

SavedPlan SavedPlanOf(const Job& job, const Plan& plan) {
  SavedPlan saved{DecisionsOf(plan), job.name, {}};
  const bool is_named = job.schedule.name != "csv" && job.schedule.name != "function";
  if (!is_named) saved.schedule.clear();
  CopyLayers(plan, saved);
  return saved;
}

int StageOf(const SavedPlan& plan, int layer) {
  const auto next = std::ranges::upper_bound(plan.bounds, layer);
  return static_cast<int>(next - plan.bounds.begin()) - 1;
}

Value KeysOf(const SavedPlan& plan) {
  const Decisions& decisions = plan;
  return KeysOf(decisions).Set("partition", CutNames::Of(plan.layers).Numbers(plan.bounds));
}

std::string ToText(const SavedPlan& plan) {
  Value::List layers;
  for (const SavedPlan::Layer& layer : plan.layers) {
    layers.push_back(Value::MakeMap(
        {{"path", layer.path}, {"type", layer.type}, {"parameters", layer.parameters}}));
  }
  Value file;
  file.Set(kMark, kFormat).Set("name", plan.name);
  file.Set("bounds", Value::IntList({plan.bounds.begin(), plan.bounds.end()}));
  VisitNumbers(plan, [&](const char* key, int64_t number) { file.Set(key, number); });
  return file.Set("schedule", plan.schedule).Set("layers", layers).ToJson(1) + "\n";
}

bool IsSavedPlan(std::string_view text) {
  text = Trim(text);
  if (!text.starts_with('{')) return false;
  return Trim(text.substr(1)).starts_with(Str('"', kMark, '"'));
}

SavedPlan ParseSavedPlan(std::string_view text) {
  if (!IsSavedPlan(text)) throw ConfigError("this is no saved plan: plan:save(file) makes one");
  const Value top = CheckedMap(TopFields(), Value::FromJson(text), "the saved plan", "key");
  SavedPlan plan;
  plan.name = CheckedName(top["name"], "the name");
  for (const int64_t bound : top["bounds"].as_ints())
    plan.bounds.push_back(static_cast<int>(bound));
  VisitNumbers(plan, [&](const char* key, auto& number) {
    number = static_cast<std::decay_t<decltype(number)>>(top[key].as_int());
  });
  plan.schedule = CheckedName(top["schedule"], "the schedule");
  plan.layers = ParseLayers(top["layers"]);
  CheckBounds(plan);
  return plan;
}

void CheckFits(const SavedPlan& plan, const Job& job) {
  const auto refuse = [&](const std::string& why) {
    throw ConfigError(Str("the saved plan of \"", plan.name, "\" does not fit the job: ", why));
  };
  const CutNames names = CutNames::Of(plan.layers);
  std::set<std::string> inside;
  for (size_t i = 0; i < plan.layers.size(); ++i) {
    if (PartNumber(plan.layers[i].type) >= 0) inside.insert(names.LayerAt(static_cast<int>(i)));
  }
  const std::vector<LayerSpec> layers =
      InParts(InWhole(job.layers), [&](int layer) { return inside.contains(Str(layer)); });
  if (names.layers() != CutNames(layers).layers()) {
    refuse(Str("it cuts ", Plural(names.layers(), "layer"), ", the job has ",
               CutNames(layers).layers()));
  }
  for (size_t i = 0; i < plan.layers.size(); ++i) {
    const SavedPlan::Layer& saved = plan.layers[i];
    const auto place = static_cast<int>(i);
    const LayerSpec& spec = layers.at(std::min(i, layers.size() - 1));
    const SavedPlan::Layer now = {PartPath(spec, place), spec.type, CountParameters(spec)};
    if (saved == now) continue;
    refuse(Str("layer ", names.At(place), " was ", saved.path, " ", saved.type, " with ",
               Plural(saved.parameters, "parameter"), ", it is ", now.path, " ", now.type, " with ",
               Plural(now.parameters, "parameter")));
  }
}

std::string SavedPlanText(const SavedPlan& plan) {
  const CutNames names = CutNames::Of(plan.layers);
  TextTable table({"stage", "layers", "parameters"});
  for (size_t s = 0; s + 1 < plan.bounds.size(); ++s) {
    int64_t parameters = 0;
    for (int i = plan.bounds[s]; i < plan.bounds[s + 1]; ++i) {
      parameters += plan.layers[i].parameters;
    }
    const int begin = plan.bounds[s], end = plan.bounds[s + 1];
    const std::string range = end == begin + 1 && !names.IsInside(end)
                                  ? Str(names.At(begin), " to ", names.At(begin))
                                  : names.Range(begin, end);
    table.Add({Str(s), range, FormatCount(parameters)});
  }
  return Str("saved plan of \"", plan.name, "\", ", Plural(names.layers(), "layer"), "\n",
             table.Render(), GridText(plan), ", schedule ",
             plan.schedule.empty() ? "the job's" : plan.schedule, ", ",
             Plural(plan.micro_batches, "micro-batch"), " of ", plan.micro_batch_size);
}

std::string DifferenceText(const SavedPlan& a, const SavedPlan& b) {
  const Value difference = DifferenceValue(a, b);
  std::string text;
  for (const auto& [key, sides] : difference["changed"].as_map()) {
    text += Str(key, ": ", sides["from"].as_string(), " -> ", sides["to"].as_string(), "\n");
  }
  const Value::List& moved = difference["moved"].as_list();
  TextTable table({"layer", "type", "from stage", "to stage"});
  for (const Value& move : moved) {
    const auto& layer = a.layers[move["layer"].as_int()];
    table.Add({layer.path, layer.type, Str(move["from"].as_int()), Str(move["to"].as_int())});
  }
  if (!moved.empty()) text += table.Render();
  if (text.empty()) return "the plans are equal";
  text.pop_back();
  return text;
}

Value DifferenceValue(const SavedPlan& a, const SavedPlan& b) {
  CheckSameLayers(a, b);
  Value::List moved;
  for (int i = 0; i < static_cast<int>(a.layers.size()); ++i) {
    const int from = StageOf(a, i), to = StageOf(b, i);
    if (from == to) continue;
    moved.push_back(
        Value::MakeMap({{"layer", i}, {"path", a.layers[i].path}, {"from", from}, {"to", to}}));
  }
  Value changed = Value::MakeMap();
  const Value::Map before = TextsOf(a), after = TextsOf(b);
  for (size_t i = 0; i < before.size(); ++i) {
    if (before[i].second == after[i].second) continue;
    changed.Set(before[i].first,
                Value::MakeMap({{"from", before[i].second}, {"to", after[i].second}}));
  }
  return Value::MakeMap({{"moved", moved}, {"changed", changed}});
}

}  // namespace strata
