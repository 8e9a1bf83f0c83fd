// Builds the layers of one stage. Before each layer the random numbers are seeded with job.seed +
// its number (or by job.seed_fn), so its initial values do not depend on the partition. The parts
// into which a large layer was split draw from one sequence, in order. A later use of a tied layer
// builds the first use again, with its seed, and copies the tied tensors; this costs some
// computation but needs no message.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/progress_line.h"
#include "engine/base/size_class.h"
#include "engine/base/tensors/allocator.h"
#include "engine/base/tensors/dtype.h"
#include "engine/base/text.h"
#include "engine/cost/gradient_blocks.h"
#include "engine/job/data_source.h"
#include "engine/layers/axis/axis_scope.h"
#include "engine/layers/connections.h"
#include "engine/layers/layer_types.h"
#include "engine/layers/packed_weight.h"
#include "engine/layers/parts.h"
#include "engine/layers/random/random.h"
#include "engine/layers/split.h"
#include "engine/runtime/stage/stage.h"
#include "engine/runtime/stage/torch_errors.h"

namespace strata {
namespace {

/// The seed of a layer's initial values. `layer`: its index in the script's list.
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

/// The index of the layer that uses the key of layer `index` first; `index` itself if it has no
/// key.
int FirstUse(const Job& job, int index) {
  const std::string& key = job.layers[index].tied_key;
  if (key.empty()) return index;
  const auto first = std::ranges::find(job.layers, key, &LayerSpec::tied_key);
  return static_cast<int>(first - job.layers.begin());
}

/// The arguments that building every layer of a stage needs.
struct Surroundings {
  const Job& job;
  EngineScript& script;
  const std::shared_ptr<AxisComm>& axis;  // the model axis
  const bool has_parts = HasParts(job.layers);

  /// The index of the layer in the script's list.
  int NumberOf(int index) const { return has_parts ? LayerNumber(job.layers, index) : index; }
};

std::unique_ptr<Layer> Build(const Surroundings& around, const LayerSpec& spec, int index) {
  return TranslateErrors([&] { return Label(spec, around.NumberOf(index)); },
                         [&] {
                           const AxisScope axis(around.axis);  // for layers in a script's layer
                           return BuildLayer(spec, &around.script, around.axis);
                         });
}

Parameter& FindParameter(Layer& layer, const std::string& name) {
  const auto found = std::ranges::find(layer.parameters(), name, &Parameter::name);
  STRATA_CHECK(found != layer.parameters().end()) << name;
  return *found;
}

/// Marks the tied tensors of the layer. A later use gets the initial values of the first use, which
/// is built again here, so that no message is needed.
void Tie(const Surroundings& around, int first, uint64_t seed, StageLayer& built) {
  const LayerSpec& spec = around.job.layers[built.index];
  const LayerSpec& first_spec = around.job.layers[first];
  const std::vector<std::string>& names = spec.tied_weights;
  for (size_t i = 0; i < names.size(); ++i) {
    built.tied.push_back({names[i], TieName(spec.tied_key, i), first == built.index});
  }
  if (first == built.index) return;
  const at::NoGradGuard no_grad;
  const RandomScope scope(seed);
  const std::unique_ptr<Layer> original = Build(around, first_spec, first);
  for (size_t i = 0; i < names.size(); ++i) {
    at::Tensor& value = FindParameter(*original, first_spec.tied_weights[i]).value;
    FindParameter(*built.layer, names[i]).value.copy_(value);
    value = at::empty({0}, value.options());
  }
  // A layer of the script has its tensors in objects of Lua too, which would keep their memory.
  if (first_spec.scripted) original->OnBound();
}

/// Builds one layer. `spec`: the spec of layer `index`, laid out for the model axis. `draws`:
/// empty, or the random numbers of the previous parts of the same layer, which go on.
StageLayer BuildStageLayer(const Surroundings& around, const LayerSpec& spec, int index,
                           std::optional<RandomScope>& draws) {
  const int number = around.NumberOf(index);
  StageLayer built = {index, LayerPath(spec, index), Label(spec, number), nullptr};
  built.number = number;
  if (draws) {
    built.layer = Build(around, spec, index);
    return built;
  }
  const int first = FirstUse(around.job, index);
  const uint64_t seed = InitialSeed(around.job, around.NumberOf(first), around.script);
  draws.emplace(seed);
  built.layer = Build(around, spec, index);
  if (!spec.tied_key.empty()) Tie(around, first, seed, built);
  return built;
}

/// Converts the values of one layer to the stored type and moves them to the device. This happens
/// layer by layer, so that a stage never holds all its layers in float32, or on the host.
void Store(Layer& layer, at::ScalarType stored, at::Device device) {
  if (stored == at::kFloat && device.is_cpu()) return;
  for (Parameter& parameter : layer.parameters()) {
    if (parameter.packed) {
      parameter.packed->To(device);
      continue;
    }
    const bool converts = !parameter.keeps_type && parameter.value.scalar_type() == at::kFloat;
    const bool trains = parameter.value.requires_grad();
    parameter.value = parameter.value.detach()
                          .to(device, converts ? stored : parameter.value.scalar_type())
                          .requires_grad_(trains);
  }
  for (LayerBuffer& buffer : layer.buffers()) buffer.value = buffer.value.to(device);
  layer.OnBound();
}

/// Keeps one piece of memory for the initial values of all these layers. When they have been moved
/// to their flat buffer, it is free as a whole, and the gradients take it.
std::shared_ptr<void> ReserveFor(const std::vector<LayerSpec>& layers, at::ScalarType stored,
                                 int parts) {
  const auto item = static_cast<int64_t>(c10::elementSize(stored));
  int64_t bytes = 0;
  for (const LayerSpec& layer : layers) {
    for (const ParameterSpec& parameter : ParametersOf(layer)) {
      if (parameter.buffer || parameter.packing != Packing::kNone) continue;
      const int64_t elements = parameter.elements() / (parameter.share ? parts : 1);
      bytes += AllocatedBytes(elements * item) + static_cast<int64_t>(kBlockUnit);
    }
  }
  return ReserveMemory(bytes);
}

/// True if the loss or a layer after a stage that ends before layer `end` is scripted.
bool IsScriptedBehind(const Job& job, int end) {
  return HasScripted(job.loss) ||
         std::any_of(job.layers.begin() + end, job.layers.end(), HasScripted);
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

/// The limits that all packed data of the job keeps; not known if any data of the job has none.
DocumentLimits DocumentsOf(const Job& job) {
  std::optional<DocumentLimits> limits;
  for (const DataSpec* data : {&job.train_data, &job.test_data}) {
    if (data->kind.empty()) continue;
    const DocumentLimits own = HasEnd(*data) ? FactsOf(*data).documents : DocumentLimits();
    limits = limits ? Both(*limits, own) : own;
  }
  return limits.value_or(DocumentLimits());
}

/// Stands for the loss of a job that has none. Such a job only runs forwards, to predict.
class NoLoss : public Loss {
 public:
  LossValue Compute(const Tensors&, const Tensors&) override {
    throw ConfigError("the job has no loss to compute: loss = nn.CrossEntropyLoss{} or another");
  }
};

/// Groups neighbouring layers with the same segment number, and the layers between them.
std::vector<Segment> SegmentsOf(const Plan& plan, const StagePlan& place) {
  std::vector<Segment> segments;
  int last = -1;
  for (int index = place.begin; index < place.end; ++index) {
    const int number = plan.layers[static_cast<size_t>(index)].segment;
    const auto i = static_cast<size_t>(index - place.begin);
    if (segments.empty() || number != last) segments.push_back({i, i, number >= 0});
    segments.back().end = i + 1;
    last = number;
  }
  const bool is_kept = segments.size() == 1 && !segments[0].is_recomputed;
  return is_kept ? std::vector<Segment>() : segments;
}

}  // namespace

StageParts BuildStage(const Job& job, const Plan& plan, int stage, at::Device device,
                      EngineScript& script, const std::shared_ptr<AxisComm>& axis) {
  const StagePlan& place = plan.stages.at(stage);
  const bool is_last = stage + 1 == static_cast<int>(plan.stages.size());
  std::vector<LayerSpec> specs(job.layers.begin() + place.begin, job.layers.begin() + place.end);
  if (axis) specs = LayOut(specs, is_last && TakesParts(job.loss));
  StageParts parts;
  parts.stage = stage;
  parts.is_first = stage == 0;
  parts.learns_before = std::any_of(plan.layers.begin(), plan.layers.begin() + place.begin,
                                    [](const auto& layer) { return layer.parameters > 0; });
  parts.shares_output = !is_last && plan.transport == "threads" && IsScriptedBehind(job, place.end);
  parts.seed = job.seed;
  parts.job_layers = LayerNumber(job.layers, static_cast<int>(job.layers.size()));
  parts.device = device;
  parts.types = {ToScalarType(job.precision.params), ToScalarType(job.precision.compute)};
  if (job.zero == 2 && plan.topology.Size(kDataAxis) > 1) parts.block_bytes = GradientBlockBytes();
  parts.axis = axis;
  parts.begin = place.begin;
  parts.end = place.end;
  parts.kept = KeptIn(job, plan, place);
  parts.documents = DocumentsOf(job);
  const Surroundings around = {job, script, axis};
  ProgressLine line(
      plan.stages.size() == 1 ? "building layers" : Str("building layers of stage ", stage),
      place.end - place.begin, ProgressForm::kCount);
  if (device.is_cpu()) {
    parts.reserved = ReserveFor(specs, parts.types.stored, axis ? axis->size() : 1);
  }
  std::optional<RandomScope> draws;
  for (int index = place.begin; index < place.end; ++index) {
    const LayerSpec& spec = specs[index - place.begin];
    const bool goes_on =
        !parts.layers.empty() && parts.layers.back().number == around.NumberOf(index);
    if (!goes_on) draws.reset();
    parts.layers.push_back(BuildStageLayer(around, spec, index, draws));
    Store(*parts.layers.back().layer, parts.types.stored, device);
    line.Advance();
  }
  draws.reset();
  parts.segments = SegmentsOf(plan, place);
  if (!is_last) return parts;
  if (job.loss.type.empty()) {
    parts.loss = std::make_unique<NoLoss>();
    return parts;
  }
  LayerSpec loss = PlannedLoss(job, plan);
  loss.input_shard = specs.back().output_shard;
  if (loss.input_shard) parts.output_parts = axis->size();
  parts.loss = BuildLoss(loss, &script, axis);
  parts.chunked_head = ChunkedHead::Make(specs.back(), loss, axis ? axis->size() : 1);
  parts.loss_label = Str(Place(loss.where), "the loss ", loss.ToString());
  return parts;
}

}  // namespace strata
