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

StageLayer BuildStageLayer(const Job& job, int index, EngineScript& script) {
  const LayerSpec& spec = job.layers[index];
  StageLayer built = {index, LayerPath(spec, index), Label(spec, index), nullptr};
  const uint64_t seed = InitialSeed(job, index, script);
  built.layer = TranslateErrors([&] { return built.label; },
                                [&] {
                                  const RandomScope scope(seed);
                                  return BuildLayer(spec, &script);
                                });
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
