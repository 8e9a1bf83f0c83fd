#include "engine/plan/cut/cut.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/job/select.h"
#include "engine/layers/layer_types.h"
#include "engine/layers/parts.h"

namespace strata::partition {
namespace {

/// The arguments of a method.
struct Request {
  const PartitionSpec& partition;
  std::string_view regex;  ///< of "type:REGEX"
  const std::vector<LayerSpec>& layers;
  const std::vector<int64_t>& parameters;
  int stages;
  Script* script;

  int layer_count() const { return static_cast<int>(layers.size()); }
};

// ---- Bounds that a user wrote

/// Returns the bounds. Throws ConfigError, whose text begins with `where`, unless they are those of
/// request.stages stages.
Bounds CheckedBounds(const Value& value, const Request& request, const std::string& where) {
  const CutNames names(request.layers);
  const auto written = [&](int64_t bound) {
    return bound >= 0 && bound <= request.layer_count() ? names.At(static_cast<int>(bound))
                                                        : Str(bound);
  };
  std::string got = value.ToLua();
  const auto refuse = [&](const std::string& why) {
    throw ConfigError(Str(where, ": expected the bounds of ", Plural(request.stages, "stage"), ", ",
                          HasParts(request.layers) ? "" : "whole ",
                          "numbers that ascend from 0 to ", names.layers(),
                          " (the number of layers), got ", got, ": ", why));
  };
  if (!value.is_list()) refuse("that is no list");
  const Value::List& list = value.as_list();
  if (!std::all_of(list.begin(), list.end(), [](const Value& v) { return v.is_int(); })) {
    refuse("not all are whole numbers");
  }
  const std::vector<int64_t> bounds = value.as_ints();
  std::vector<std::string> texts;
  for (const int64_t bound : bounds) texts.push_back(written(bound));
  got = Str("{", Join(texts, ", "), "}");
  const auto stages = static_cast<size_t>(request.stages);
  if (bounds.size() != stages + 1) {
    refuse(Str(stages + 1, " bounds are needed, one more than stages; these are ", bounds.size()));
  }
  if (bounds.front() != 0) refuse(Str("the first is ", bounds.front(), ", not 0"));
  if (bounds.back() != request.layer_count()) {
    refuse(Str("the last is ", texts.back(), ", not ", names.layers()));
  }
  for (size_t stage = 0; stage < stages; ++stage) {
    if (bounds[stage] == bounds[stage + 1]) refuse(Str("stage ", stage, " would be empty"));
    if (bounds[stage] > bounds[stage + 1]) {
      refuse(Str(texts[stage + 1], " follows ", texts[stage]));
    }
  }
  return {bounds.begin(), bounds.end()};
}

// ---- The methods

Bounds ByCount(const Request& request) { return Uniform(request.layer_count(), request.stages); }

Bounds ByParameters(const Request& request) { return Balanced(request.parameters, request.stages); }

Bounds ByType(const Request& request) {
  const std::vector<int> found = LayersOfType(request.regex, request.layers, "partition");
  if (found.empty()) {
    std::set<std::string> types;
    for (const LayerSpec& layer : request.layers) types.insert(layer.type);
    throw ConfigError(Str("partition = \"", request.partition.method, "\": no layer's type matches",
                          DidYouMean(request.regex, std::vector(types.begin(), types.end()), 40)));
  }
  std::vector<int64_t> weights(request.layers.size());
  for (int layer : found) weights[layer] = 1;
  return Balanced(weights, request.stages);
}

Bounds ByCuts(const Request& request) {
  const std::vector<int>& bounds = request.partition.bounds;
  return CheckedBounds(Value::IntList({bounds.begin(), bounds.end()}), request, "partition");
}

Bounds ByFunction(const Request& request) {
  STRATA_CHECK(request.script != nullptr) << "a partition function without its script";
  Value::List layers;
  for (size_t i = 0; i < request.layers.size(); ++i) {
    const int index = static_cast<int>(i);
    Value layer;
    layer.Set("index", index).Set("type", request.layers[i].type);
    layer.Set("name", LayerPath(request.layers[i], index));
    layers.push_back(layer.Set("parameters", request.parameters[i]));
  }
  const FunctionRef& function = request.partition.function;
  const Value bounds = request.script->Call(function, {std::move(layers), request.stages});
  return CheckedBounds(bounds, request, Str(function.where, ": the partition function's result"));
}

// ---- The table of methods

struct Method {
  std::string_view name;
  std::string_view written;  ///< as users write it; "": users do not write this name
  GoesBy by;
  Bounds (*cut)(const Request&);  ///< null unless it goes by kLayers
};

constexpr Method kMethods[] = {
    {"auto", "auto", GoesBy::kGuess, nullptr},
    {"uniform", "uniform", GoesBy::kLayers, ByCount},
    {"parameters", "parameters", GoesBy::kLayers, ByParameters},
    {"time", "time", GoesBy::kTime, nullptr},
    {"profile", "", GoesBy::kTime, nullptr},
    {"memory", "memory", GoesBy::kMemory, nullptr},
    {"type", "type:REGEX", GoesBy::kLayers, ByType},
    {"cuts", "", GoesBy::kLayers, ByCuts},  // a list of bounds, or strata.cut()
    {"function", "", GoesBy::kLayers, ByFunction},
};
static_assert(std::ranges::all_of(kMethods, [](const Method& method) {
  return (method.by == GoesBy::kLayers) == (method.cut != nullptr);
}));

constexpr std::string_view kOthers =
    "; also cuts such as {0, 19, 22} and a function(layers, stages) are possible";

/// Splits "type:REGEX" at the colon. Other methods have no `regex`.
struct MethodText {
  explicit MethodText(std::string_view text) : name(text.substr(0, text.find(':'))) {
    if (name.size() < text.size()) regex = text.substr(name.size() + 1);
  }
  std::string_view name;
  std::optional<std::string_view> regex;
};

[[noreturn]] void RefuseUnknown(const std::string& method) {
  std::vector<std::string> names;
  for (const std::string& written : MethodNames()) {
    names.emplace_back(MethodText(written).name);
  }
  const std::string nearest = Nearest(MethodText(method).name, names);
  const auto near = std::ranges::find(kMethods, nearest, &Method::name);
  const std::string hint = nearest.empty() ? Str("; it is one of ", Join(MethodNames(), ", "))
                                           : Str("; did you mean \"", near->written, "\"?");
  throw ConfigError(Str("partition: there is no method \"", method, "\"", hint, kOthers));
}

/// True if the parts that the method needs are there: an expression for "type" (and for no other
/// method), bounds for "cuts", a function for "function".
bool IsComplete(const PartitionSpec& partition, const MethodText& text) {
  if (text.name == "type") return text.regex && !text.regex->empty();
  if (text.name == "cuts") return !partition.bounds.empty();
  if (text.name == "function") return !partition.function.where.empty();
  return !text.regex;
}

const Method& MethodOf(const PartitionSpec& partition) {
  const MethodText text(partition.method);
  const auto method = std::ranges::find(kMethods, text.name, &Method::name);
  if (method == std::end(kMethods) || !IsComplete(partition, text)) RefuseUnknown(partition.method);
  return *method;
}

}  // namespace

void CheckMethod(const PartitionSpec& partition) { MethodOf(partition); }

GoesBy MethodGoesBy(const PartitionSpec& partition) { return MethodOf(partition).by; }

std::vector<std::string> MethodNames() {
  std::vector<std::string> names;
  for (const Method& method : kMethods) {
    if (!method.written.empty()) names.emplace_back(method.written);
  }
  return names;
}

void CheckStages(int64_t stages, int64_t layers) {
  if (stages <= layers) return;
  throw ConfigError(Str("pipe * stages_per_rank: ", Plural(stages, "stage"),
                        " need at least as many layers; ", "the list has ", FormatCount(layers)));
}

Bounds Cut(const PartitionSpec& partition, const std::vector<LayerSpec>& layers,
           const std::vector<int64_t>& parameters, int stages, Script* script) {
  STRATA_CHECK(stages >= 1 && parameters.size() == layers.size())
      << stages << " stages, " << parameters.size() << " counts for " << layers.size() << " layers";
  const Method& method = MethodOf(partition);
  const auto count = static_cast<int64_t>(layers.size());
  CheckStages(stages, count);
  STRATA_CHECK(method.cut != nullptr) << partition.method << " needs costs";
  const std::string_view regex = MethodText(partition.method).regex.value_or("");
  return method.cut({partition, regex, layers, parameters, stages, script});
}

}  // namespace strata::partition
