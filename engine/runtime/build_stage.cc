#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <memory>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/layers/random.h"
#include "engine/runtime/stage.h"
#include "engine/runtime/torch_errors.h"
#include "engine/spec/connections.h"
#include "engine/spec/layers.h"

namespace strata {
namespace {

uint64_t InitialSeed(const Job& job, int layer, EngineScript& script) {
  if (job.seed_fn.where.empty()) return static_cast<uint64_t>(job.seed + layer);
  const Value seed = script.Call(job.seed_fn, {Value(layer)});
  if (!seed.is_int()) {
    throw ConfigError(Str(Place(job.seed_fn.where), "seed_fn(", layer,
                          ") gives a whole number, got ", seed.Describe()));
  }
  return static_cast<uint64_t>(seed.as_int());
}

std::string Label(const LayerSpec& spec, int index) {
  return Str(Place(spec.where), "layer ", index, " ", spec.ToString());
}

/// The layer where its key is used first; `index` itself without a key.
int FirstUse(const Job& job, int index) {
  const std::string& key = job.layers[index].tied_key;
  if (key.empty()) return index;
  const auto first = std::ranges::find(job.layers, key, &LayerSpec::tied_key);
  return static_cast<int>(first - job.layers.begin());
}

std::unique_ptr<Layer> BuildSeeded(const Job& job, int index, uint64_t seed, EngineScript& script) {
  const LayerSpec& spec = job.layers[index];
  return TranslateErrors([&] { return Label(spec, index); },
                         [&] {
                           const RandomScope scope(seed);
                           return BuildLayer(spec, &script);
                         });
}

Parameter& FindParameter(Layer& layer, const std::string& name) {
  const auto found = std::ranges::find(layer.parameters(), name, &Parameter::name);
  STRATA_CHECK(found != layer.parameters().end()) << name;
  return *found;
}

/// Marks what the layer shares. A later use gets the first one's initial values: built again here,
/// they need no message.
void Tie(const Job& job, int first, uint64_t seed, EngineScript& script, StageLayer& built) {
  const LayerSpec& spec = job.layers[built.index];
  const std::vector<std::string>& names = spec.tied_weights;
  for (size_t i = 0; i < names.size(); ++i) {
    built.tied.push_back({names[i], TieName(spec.tied_key, i), first == built.index});
  }
  if (first == built.index) return;
  const at::NoGradGuard no_grad;
  const std::unique_ptr<Layer> original = BuildSeeded(job, first, seed, script);
  for (size_t i = 0; i < names.size(); ++i) {
    const std::string& name = job.layers[first].tied_weights[i];
    FindParameter(*built.layer, names[i]).value.copy_(FindParameter(*original, name).value);
  }
}

StageLayer BuildStageLayer(const Job& job, int index, EngineScript& script) {
  const LayerSpec& spec = job.layers[index];
  StageLayer built = {index, LayerPath(spec, index), Label(spec, index), nullptr};
  const int first = FirstUse(job, index);
  const uint64_t seed = InitialSeed(job, first, script);
  built.layer = BuildSeeded(job, index, seed, script);
  if (!spec.tied_key.empty()) Tie(job, first, seed, script, built);
  for (Parameter& parameter : built.layer->parameters()) parameter.frozen |= spec.frozen;
  return built;
}

std::vector<KeptValue> KeptIn(const Job& job, const Plan& plan, const StagePlan& stage) {
  std::vector<KeptValue> values;
  for (Connection& connection : FindConnections(job.layers)) {
    if (connection.from >= stage.end || connection.to < stage.begin) continue;
    const size_t tensors = plan.layers.at(connection.from).output.size();
    values.push_back({std::move(connection), tensors});
  }
  return values;
}

}  // namespace

StageParts BuildStage(const Job& job, const Plan& plan, int stage, at::Device device,
                      EngineScript& script) {
  const StagePlan& place = plan.stages.at(stage);
  StageParts parts;
  parts.stage = stage;
  parts.is_first = stage == 0;
  parts.seed = job.seed;
  parts.job_layers = static_cast<int>(job.layers.size());
  parts.device = device;
  parts.begin = place.begin;
  parts.end = place.end;
  parts.kept = KeptIn(job, plan, place);
  for (int index = place.begin; index < place.end; ++index) {
    parts.layers.push_back(BuildStageLayer(job, index, script));
  }
  const bool is_last = stage + 1 == static_cast<int>(plan.stages.size());
  if (is_last) parts.loss = BuildLoss(job.loss, &script);
  return parts;
}

}  // namespace strata
