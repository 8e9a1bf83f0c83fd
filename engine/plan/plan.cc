// UncutPlan and MakePlan(): from a job to its plan. The first part does not depend on the cuts:
// degrees, device, transport, notices, shapes and costs. Cut() then cuts the list of layers and
// derives stages, boundaries, ties and segments. The time is linear in the layers, apart from the
// search for the cut (cut/) and from measurements.
#include "engine/plan/plan.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <set>
#include <string_view>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/job/data_source.h"
#include "engine/job/parameter_groups.h"
#include "engine/job/ties.h"
#include "engine/layers/connections.h"
#include "engine/layers/inputs.h"
#include "engine/layers/layer_types.h"
#include "engine/layers/parts.h"
#include "engine/layers/split.h"
#include "engine/plan/cut/cost_cut.h"
#include "engine/plan/cut/cut.h"
#include "engine/plan/data_checks.h"
#include "engine/plan/plan_seconds.h"
#include "engine/plan/rank_speeds.h"
#include "engine/plan/recompute.h"
#include "engine/plan/uncut_plan.h"
#include "engine/schedule/stage_map.h"

namespace strata {
namespace {

using partition::GoesBy;
using Shapes = MicroBatchShapes;

/// Fills in the degrees that are not given: 1 for pipe and model, data = world / (pipe * model).
/// Checks that they fit the world.
Parallel ResolveDegrees(const Parallel& asked, int world_size) {
  Parallel degrees = {std::max(asked.pipe, 1), asked.data, std::max(asked.model, 1)};
  // Refuses too many ranks first, so that no product below overflows.
  Topology::Make({"pipe", "data", "model"},
                 {degrees.pipe, std::max(degrees.data, 1), degrees.model});
  const int slice = degrees.pipe * degrees.model;
  if (world_size == 0) {
    degrees.data = std::max(asked.data, 1);
  } else if (degrees.data == 0) {
    if (world_size % slice != 0) {
      throw ConfigError(Str("pipe * model = ", degrees.pipe, " * ", degrees.model,
                            " does not divide the ", Plural(world_size, "rank")));
    }
    degrees.data = world_size / slice;
  }
  const int ranks = slice * degrees.data;
  if (world_size != 0 && ranks != world_size) {
    throw ConfigError(Str("pipe * data * model = ", degrees.pipe, " * ", degrees.data, " * ",
                          degrees.model, " = ", ranks, ", but there are ",
                          Plural(world_size, "rank")));
  }
  return degrees;
}

/// Passes on the notes of the data. A note of both data.train and data.test is passed on once.
void NoteData(const DataSpec& train, const DataSpec& test, Plan& plan) {
  for (const std::string& note : train.notes) plan.notices.push_back(Str("data.train: ", note));
  for (const std::string& note : test.notes) {
    if (std::ranges::find(train.notes, note) != train.notes.end()) continue;
    plan.notices.push_back(Str("data.test: ", note));
  }
}

/// Adds notices about requests that have no effect.
void NoteIdle(const Job& job, Plan& plan) {
  if (!job.trains) return;
  const bool is_evaluated = job.eval.every != 0 || !job.eval.metrics.empty();
  if (is_evaluated && !job.train_data.kind.empty() && job.test_data.kind.empty()) {
    plan.notices.push_back("nothing is evaluated: eval needs data.test");
  }
  int64_t frozen = 0;
  for (const LayerPlan& layer : plan.layers) frozen += layer.frozen;
  if (plan.parameters == 0 && frozen > 0) {
    plan.notices.push_back("nothing learns: freeze holds for every parameter");
  }
}

/// The type of a layer that is a Transformer's layer or stack, or the first part of one; "" for any
/// other layer.
std::string_view TransformerType(const LayerSpec& layer) {
  const std::string_view type = layer.type;
  const bool is_one =
      !layer.scripted && (type.starts_with("TransformerE") || type.starts_with("TransformerD"));
  return is_one ? type.substr(0, type.find('.')) : "";
}

/// Adds a notice if a Transformer's layer follows another one in the list and so gets no mask and
/// no memory, because each gives one tensor only.
void NoteLostInputs(const Job& job, const std::vector<TensorSpecs>& inputs, Plan& plan) {
  for (size_t i = 1, before = 0; i < inputs.size(); ++i) {
    const std::string_view type = TransformerType(job.layers[i]);
    if (!type.empty() && PartNumber(job.layers[i].type) > 0) continue;
    const auto names = InputNames(type);
    const size_t end = std::min(inputs[before].size(), names.size());
    std::vector<std::string> lost;
    for (size_t k = inputs[i].size(); k < end; ++k) lost.emplace_back(names[k]);
    if (type == TransformerType(job.layers[before]) && !lost.empty()) {
      plan.notices.push_back(Str(
          "layer ", LayerNumber(job.layers, static_cast<int>(i)), " ", type, " gets no ",
          Join(lost, " and no "), ", as the layer before it does not hand it on; nn.",
          type.substr(0, type.find("Layer")), "{layer, num_layers=N} gives it to all its layers"));
    }
    before = i;
  }
}

/// Adds a notice if a layer gets the last states of a recurrent layer before it, which passes them
/// on behind the sequence.
void NotePassedStates(const Job& job, const std::vector<TensorSpecs>& inputs, Plan& plan) {
  for (size_t i = 1; i < inputs.size(); ++i) {
    const LayerSpec &before = job.layers[i - 1], &layer = job.layers[i];
    const bool is_recurrent = before.type == "RNN" || before.type == "LSTM" || before.type == "GRU";
    if (!is_recurrent || before.scripted || layer.scripted || inputs[i].size() < 2) continue;
    const auto names = InputNames(layer.type);
    const bool is_known = names.size() >= inputs[i].size();
    std::vector<std::string> taken;
    for (size_t k = 1; is_known && k < inputs[i].size(); ++k) taken.emplace_back(names[k]);
    plan.notices.push_back(Str("layer ", LayerNumber(job.layers, static_cast<int>(i)), " ",
                               layer.type, " takes the last states of the ", before.type,
                               " before it", is_known ? " as " : "", Join(taken, " and "),
                               "; function(x) return x end between them leaves these out"));
  }
}

/// Adds a notice if data.test has the split "train", which is the default and meant for data.train.
void NoteTestSplit(const DataSpec& train, const DataSpec& test, Plan& plan) {
  const auto is_part = [](std::string_view kind) { return kind == "part"; };
  if (!HasEnd(train) || !HasEnd(test) || AnySource(test, is_part))
    return;  // the script has made the parts itself
  const auto is_alike = [&](const char* option) {
    return FindOption(train.options, option) == FindOption(test.options, option);
  };
  if (FindOption(test.options, "split") != Value("train")) return;
  if (is_alike("split") && is_alike("path")) {
    plan.notices.push_back(
        "data.test has the split \"train\", as the training; split = \"test\" has the others");
  } else if (!is_alike("path")) {
    plan.notices.push_back(
        "data.test leaves out what split = \"test\" has, as its split is \"train\"; of a text, "
        "split = \"all\" has both");
  }
}

/// The layers whose gradients are not reproducible on a GPU, as "layer 3 Upsample, layer 5
/// Upsample". A layer that is in parts appears once.
std::string UnorderedLayers(const std::vector<LayerSpec>& layers) {
  std::vector<std::string> found;
  for (size_t i = 0; i < layers.size(); ++i) {
    const std::string_view type = UnorderedOnGpu(layers[i]);
    if (type.empty()) continue;
    found.push_back(Str("layer ", LayerNumber(layers, static_cast<int>(i)), " ", type));
  }
  found.erase(std::ranges::unique(found).begin(), found.end());
  return Join(found, ", ");
}

/// Sets the device and the transport: those that the job asks for, or the defaults.
void ResolvePlace(const Job& job, int gpus, Plan& plan) {
  const int ranks = plan.topology.world_size();
  if (job.device == "cuda" && gpus == 0) {
    throw ConfigError(
        "device = \"cuda\", but this machine has no GPU (or CUDA_VISIBLE_DEVICES hides it)");
  }
  const bool takes_gpus =
      gpus > 0 && job.transport != "gloo";  // gloo moves tensors of the host's memory only
  plan.device = job.device.empty() ? (takes_gpus ? "cuda" : "cpu") : job.device;
  if (job.transport == "gloo" && plan.device != "cpu") {
    throw ConfigError(Str("transport = \"gloo\" is for CPUs, and device is ", plan.device,
                          "; use nccl for a GPU each, or threads for stages that share one"));
  }
  if (job.device.empty() && gpus == 0) plan.notices.push_back("no GPU here: the device is cpu");
  if (plan.device == "cuda") plan.unordered = UnorderedLayers(job.layers);
  if (!plan.unordered.empty()) {
    plan.notices.push_back(
        Str("gradients of ", plan.unordered,
            " are added up in any order on a GPU: runs differ in the last bits"));
  }
  if (job.precision.name == "tf32" && plan.device == "cpu") {
    plan.notices.push_back("a CPU has no TF32: products are in float32");
  }

  if (job.trains && job.check.is_on()) {
    if (plan.device != "cpu") {
      throw ConfigError(Str("check repeats work on CPUs only, and device is ", plan.device));
    }
    if (ranks == 1) {
      plan.notices.push_back("check needs a second rank, which repeats work: nothing is checked");
    }
  }

  const bool gpu_each = plan.device == "cuda" && ranks <= gpus;
  plan.transport = job.transport;
  if (plan.transport.empty()) {
    plan.transport = ranks == 1             ? "threads"
                     : plan.device == "cpu" ? "gloo"
                     : gpu_each             ? "nccl"
                                            : "threads";
  }
  if (plan.transport == "nccl" && !gpu_each) {
    throw ConfigError(Str("transport = \"nccl\" needs a GPU for each of the ",
                          Plural(ranks, "rank"), "; device is ", plan.device,
                          " and this machine has ", gpus,
                          "; use gloo on CPUs, or threads for stages that share a GPU"));
  }
}

/// Sets the links between the job's ranks, from the options or from the file that the job names.
void ApplyLinks(const Job& job, const PlanOptions& options, Plan& plan) {
  const int ranks = plan.topology.world_size();
  if (options.links && options.links->ranks() < ranks) {
    throw ConfigError(Str("links were measured between ", Plural(options.links->ranks(), "rank"),
                          ", the job has ", ranks));
  }
  plan.links = options.links;
  if (options.links || job.links.empty()) return;
  LinkTable links = ReadLinksFile(job.links);
  const std::string what = Str("links: ", job.links, " was measured ");
  if (plan.transport == "threads") {
    plan.notices.push_back(what + Str("between processes, and is not needed: ",
                                      ranks == 1 ? "there is one rank" : "the ranks are threads"));
    return;
  }
  if (links.transport() != plan.transport) {
    throw ConfigError(Str(what, "over ", links.transport(), ", the job's transport is ",
                          plan.transport, "; measure it again: strata doctor --links"));
  }
  if (links.ranks() < ranks) {
    throw ConfigError(Str(what, "between ", Plural(links.ranks(), "rank"), ", the job has ", ranks,
                          "; measure them: strata doctor --links --ranks=", ranks));
  }
  if (links.ranks() > ranks) {
    plan.notices.push_back(what + Str("between ", links.ranks(), " ranks: the job's ", ranks,
                                      " are taken to be the first of them"));
  }
  plan.links = std::make_shared<const LinkTable>(std::move(links));
}

/// Sets the slowness and the memory limit of each rank of the pipe axis. All its replicas need the
/// same memory, so the least limit counts.
void ApplyAbilities(const Job& job, const PlanOptions& options, Plan& plan) {
  const std::vector<RankAbility> abilities =
      AbilitiesOf(job.ranks, options.hosts, plan.topology.world_size(), job.memory);
  std::vector<double> speeds;
  std::vector<int64_t> memories(static_cast<size_t>(plan.pipe()), 0);
  for (const RankAbility& rank : abilities) {
    const int pipe = plan.topology.Index(static_cast<int>(speeds.size()), kPipeAxis);
    memories[pipe] = memories[pipe] == 0 ? rank.memory : std::min(memories[pipe], rank.memory);
    speeds.push_back(rank.speed);
  }
  plan.slowness = SlownessOf(plan.topology, speeds);
  plan.memory = std::ranges::max(memories);
  const auto is_less = [&](int64_t memory) { return memory < plan.memory; };
  if (std::ranges::any_of(memories, is_less)) plan.memories = std::move(memories);
  if (!job.ranks.measured || plan.pipe() == 1) return;
  if (partition::MethodGoesBy(job.partition) != GoesBy::kGuess) {
    throw ConfigError(
        "ranks: speed = \"measured\" moves layers before the first step, but partition says where "
        "they are; leave out one of them");
  }
}

std::vector<LayerPlan> PlanLayers(const Job& job) {
  std::vector<LayerPlan> layers;
  for (const LayerSpec& spec : job.layers) {
    LayerPlan& layer = layers.emplace_back();
    layer.index = static_cast<int>(layers.size()) - 1;
    layer.path = PartPath(spec, layer.index);
    layer.type = spec.type;
    layer.frozen = CountFrozen(spec);
    layer.parameters = CountParameters(spec) - layer.frozen;
  }
  return layers;
}

/// The settings of each stage. `given` may tell live micro-batches and slots; if it is empty they
/// are those of 1F1B.
std::vector<StageSetting> SettingsOf(const Job& job, const std::vector<StageSetting>& given,
                                     const Plan& plan, const std::vector<int>& stage_ranks) {
  const int stages = static_cast<int>(stage_ranks.size());
  const int micro_batches = static_cast<int>(plan.batch.micro_batches);
  std::vector<StageSetting> settings = given;
  settings.resize(stage_ranks.size());
  for (int s = 0; s < stages; ++s) {
    StageSetting& setting = settings[s];
    if (given.empty()) {
      setting.live = std::min(stages - s, micro_batches);
      setting.slots = std::max(2, setting.live);
    }
    const int rank = stage_ranks[s];
    setting.receives = s > 0 && stage_ranks[s - 1] != rank;
    setting.sends = s + 1 < stages && stage_ranks[s + 1] != rank;
    setting.micro_batches = micro_batches;
    setting.owners = job.zero > 0 ? plan.topology.Size("data") : 1;
  }
  return settings;
}

/// Cuts by a method that goes by kLayers. It sees whole layers, not their parts, except that bounds
/// which a user wrote are places in the expanded list.
std::vector<int> CutBetweenLayers(const Job& job, const Plan& plan, const PartitionSpec& partition,
                                  int stages, Script* script) {
  const bool is_written = partition.method == "cuts";
  const bool learns =
      std::ranges::any_of(plan.layers, [](const auto& layer) { return layer.parameters > 0; });
  std::vector<int64_t> parameters;
  std::vector<int> first;  // the place of each whole layer in the expanded list
  for (const LayerPlan& layer : plan.layers) {
    if (is_written || PartNumber(layer.type) <= 0) {
      first.push_back(layer.index);
      parameters.push_back(0);
    }
    parameters.back() += learns ? layer.parameters : layer.frozen;
  }
  first.push_back(static_cast<int>(plan.layers.size()));
  std::vector<int> bounds = partition::Cut(partition, is_written ? job.layers : InWhole(job.layers),
                                           parameters, stages, script);
  for (int& bound : bounds) bound = first[static_cast<size_t>(bound)];
  return bounds;
}

/// Cuts the list. If the method needs costs but they are not known, "auto" goes by parameters.
std::vector<int> CutLayers(const Job& job, const Plan& plan, const std::vector<int>& stage_ranks,
                           const std::vector<StageSetting>& given, Script* script) {
  const std::vector<StageSetting> settings = SettingsOf(job, given, plan, stage_ranks);
  const GoesBy by = partition::MethodGoesBy(job.partition);
  const auto stages = static_cast<int>(settings.size());
  if (by != GoesBy::kLayers && plan.costs) {
    partition::CheckStages(stages, static_cast<int64_t>(job.layers.size()));
    partition::CostCutOptions options = {.by_memory = by == GoesBy::kMemory,
                                         .micro_batches = plan.batch.micro_batches,
                                         .settings = settings,
                                         .stage_ranks = stage_ranks};
    for (const int rank : stage_ranks) {
      if (plan.memory > 0) options.limits.push_back(plan.MemoryOf(rank) / (stages / plan.pipe()));
      if (!plan.slowness.empty()) options.slowness.push_back(plan.SlownessOf(rank));
    }
    if (job.recompute.method == RecomputeSpec::Method::kFunction) {
      options.recomputes = [&job, &plan, script](int place, int stage) {
        STRATA_CHECK(script != nullptr) << "a recompute function without its script";
        return IsChosen(job, plan, place, stage, *script);
      };
    }
    return partition::CutByCosts(job, *plan.costs, options);
  }
  return CutBetweenLayers(job, plan, by == GoesBy::kLayers ? job.partition : PartitionSpec(),
                          stages, script);
}

std::vector<StagePlan> PlanStages(const std::vector<int>& bounds,
                                  const std::vector<int>& stage_ranks,
                                  const std::vector<LayerPlan>& layers) {
  std::vector<StagePlan> stages;
  for (size_t s = 0; s + 1 < bounds.size(); ++s) {
    StagePlan& stage = stages.emplace_back();
    stage.stage = static_cast<int>(s);
    stage.rank = stage_ranks[s];
    stage.begin = bounds[s];
    stage.end = bounds[s + 1];
    for (int i = stage.begin; i < stage.end; ++i) {
      stage.parameters += layers[i].parameters;
    }
  }
  return stages;
}

/// Adds the ties. REQUIRES: the layers have their stages. Counts each tied parameter once in
/// plan.parameters.
void PlanTies(const Job& job, Plan& plan) {
  for (Tie& tie : FindTies(job.layers)) {
    TiePlan& planned = plan.ties.emplace_back();
    const LayerSpec& first = job.layers[tie.layers.front()];
    const auto copies = static_cast<int64_t>(tie.layers.size()) - 1;
    plan.parameters -= copies * SharedElements(first);
    if (copies == 0) {
      plan.notices.push_back(Str("strata.tied{\"", tie.key, "\"} is used once: nothing is shared"));
    }
    for (const int layer : tie.layers) {
      planned.stages.push_back(plan.layers[layer].stage);
    }
    planned.key = std::move(tie.key);
    planned.layers = std::move(tie.layers);
    planned.tensors = static_cast<int>(first.tied_weights.size());
    planned.frozen = first.IsFrozen(first.tied_weights.front());
  }
}

/// Checks that the demands of layers on their neighbours (LayOut()) are met within every stage.
void CheckLayouts(const Job& job, const Plan& plan) {
  for (const StagePlan& stage : plan.stages) {
    const bool is_last = &stage == &plan.stages.back();
    const auto first = job.layers.begin();
    LayOut({first + stage.begin, first + stage.end}, is_last && TakesParts(job.loss));
  }
}

void PlanShapes(const Job& job, const Shapes& shapes, Script* script, Plan& plan) {
  const int model = plan.topology.Size("model");
  FindClassDim(job, shapes, plan);
  if (shapes.input.empty()) {
    if (model > 1) CheckSplits(job.layers, {}, model);
    return;
  }
  const std::vector<TensorSpecs>& outputs = shapes.outputs;
  for (size_t i = 0; i < outputs.size(); ++i) {
    plan.layers[i].output = WithType(outputs[i], DType::kFloat32, job.precision.compute);
  }
  const std::vector<TensorSpecs> inputs = LayerInputs(job.layers, shapes.input, outputs);
  NoteLostInputs(job, inputs, plan);
  NotePassedStates(job, inputs, plan);
  if (model > 1) CheckSplits(job.layers, inputs, model, script);
  CheckData(job, plan, shapes, script);
}

void PlanBoundaries(const Job& job, const Shapes& shapes, Plan& plan) {
  if (shapes.input.empty()) return;
  const std::vector<TensorSpecs> boundaries =
      BoundarySpecs(job.layers, plan.bounds, shapes.input, shapes.outputs);
  for (StagePlan& stage : plan.stages) {
    const auto boundary = [&](int s) {
      const DType compute =
          s > 0 ? job.precision.compute : DType::kFloat32;  // boundary 0 is the data
      return WithType(boundaries[s], DType::kFloat32, compute);
    };
    stage.input = boundary(stage.stage);
    stage.output = boundary(stage.stage + 1);
  }
}

template <class Place>
std::vector<int> Each(const std::vector<Place>& places, int Place::*member) {
  std::vector<int> each;
  std::ranges::transform(places, std::back_inserter(each), member);
  return each;
}

}  // namespace

void CheckMaxNorm(const Job& job, const Plan& plan, std::span<const int> again) {
  // Replicas that do not train have equal tables, and each may shorten the vectors that it uses.
  const bool has_replicas = job.trains && plan.topology.Size(kDataAxis) > 1;
  for (size_t i = 0; i < job.layers.size(); ++i) {
    const LayerSpec& layer = job.layers[i];
    if (!HasMaxNorm(layer)) continue;
    const auto index = static_cast<int>(i);
    const bool is_shared = std::ranges::any_of(plan.ties, [&](const TiePlan& tie) {
      return std::ranges::find(tie.layers, index) != tie.layers.end() &&
             std::ranges::adjacent_find(tie.stages, std::not_equal_to()) != tie.stages.end();
    });
    const LayerPlan& planned = plan.layers[i];
    const bool runs_again =
        planned.segment >= 0 || std::ranges::find(again, planned.stage) != again.end();
    const char* const why = has_replicas ? "with data above 1"
                            : is_shared  ? "in a tie over several stages"
                            : runs_again ? "where a layer is recomputed"
                            : job.trains && job.check.is_on()
                                ? "where another rank repeats it (check)"
                                : nullptr;
    if (!why) continue;
    throw ConfigError(
        Str(Place(layer.where), "layer ", LayerNumber(job.layers, index), " ", layer.ToString(),
            ": max_norm shortens vectors when they are used, which is not done ", why));
  }
}

std::vector<ParameterSpec> SharedParameters(const LayerSpec& spec) {
  std::vector<ParameterSpec> parameters;
  for (const ParameterSpec& parameter : ParametersOf(spec)) {
    const auto& shared = spec.tied_weights;
    const bool is_shared = std::ranges::find(shared, parameter.name) != shared.end();
    if (is_shared && !spec.IsFrozen(parameter.name)) parameters.push_back(parameter);
  }
  return parameters;
}

int64_t SharedElements(const LayerSpec& spec) {
  int64_t elements = 0;
  for (const ParameterSpec& parameter : SharedParameters(spec)) elements += parameter.elements();
  return elements;
}

LayerSpec PlannedLoss(const Job& job, const Plan& plan) {
  LayerSpec loss = job.loss;
  loss.class_dim = plan.class_dim;
  return loss;
}

UncutPlan::UncutPlan(const Job& job, const PlanOptions& options, Script* script) : script_(script) {
  if (job.layers.empty()) throw ConfigError("layers: expected at least one layer, got none");
  if (script != nullptr) script->BeginPlan();
  if (job.trains) CheckWholeParameters(job);
  const Parallel degrees = ResolveDegrees(job.parallel, options.world_size);

  Plan& plan = uncut_;
  plan.topology =
      Topology::Make({"pipe", "data", "model"}, {degrees.pipe, degrees.data, degrees.model});
  ResolvePlace(job, options.gpus, plan);
  NoteData(job.train_data, job.test_data, plan);
  NoteTestSplit(job.train_data, job.test_data, plan);
  ApplyLinks(job, options, plan);
  plan.batch = ResolveBatch(job.batch);
  ApplyAbilities(job, options, plan);
  plan.schedule = job.schedule.name;
  plan.layers = PlanLayers(job);
  // This check comes before anything is allocated that is as large as the number of stages.
  const int64_t stages = int64_t{degrees.pipe} * std::max(job.stages_per_rank, 1);
  if (options.stage_ranks.empty()) {
    partition::CheckStages(stages, static_cast<int64_t>(job.layers.size()));
  }
  for (const LayerPlan& layer : plan.layers) plan.parameters += layer.parameters;
  NoteIdle(job, plan);
  // Faults that shapes show are reported before the partition's function is called or layers are
  // measured.
  partition::CheckMethod(job.partition);
  shapes_ = InferShapes(job, plan.batch, script);
  PlanShapes(job, shapes_, script, plan);
  SetPlanCosts(job, options, shapes_, script, plan);
  if (script == nullptr) return;
  for (std::string& note : script->TakeNotes()) plan.notices.push_back(std::move(note));
}

UncutPlan::UncutPlan(const Job& job, const Plan& plan, Script* script)
    : uncut_(plan), script_(script) {
  uncut_.bounds.clear();
  uncut_.stages.clear();
  uncut_.ties.clear();
  uncut_.notices.clear();
  uncut_.parameters = 0;
  shapes_.input = plan.stages.front().input;
  for (LayerPlan& layer : uncut_.layers) {
    uncut_.parameters += layer.parameters;
    layer.segment = -1;
    if (shapes_.input.empty()) continue;
    shapes_.outputs.push_back(WithType(layer.output, job.precision.compute, DType::kFloat32));
  }
}

Plan UncutPlan::Cut(const Job& job, const std::vector<int>& stage_ranks,
                    const std::vector<StageSetting>& settings) const {
  Plan plan = uncut_;
  plan.schedule = job.schedule.name;
  plan.bounds = CutLayers(job, plan, stage_ranks, settings, script_);
  plan.stages = PlanStages(plan.bounds, stage_ranks, plan.layers);
  PlanBoundaries(job, shapes_, plan);
  if (plan.topology.Size("model") > 1) CheckLayouts(job, plan);
  for (const StagePlan& stage : plan.stages) {
    for (int i = stage.begin; i < stage.end; ++i) {
      plan.layers[i].stage = stage.stage;
    }
  }
  PlanTies(job, plan);
  PlanSegments(job, script_, plan);
  CheckMaxNorm(job, plan, {});
  return plan;
}

Plan MakePlan(const Job& job, const PlanOptions& options, Script* script) {
  const UncutPlan uncut_plan(job, options, script);
  const int pipe = uncut_plan.plan().topology.Size("pipe");
  return uncut_plan.Cut(job,
                        options.stage_ranks.empty()
                            ? LoopMap(pipe, std::max(job.stages_per_rank, 1))
                            : options.stage_ranks,
                        options.settings);
}

std::vector<int> Plan::stage_ranks() const { return Each(stages, &StagePlan::rank); }
std::vector<int> Plan::segments() const { return Each(layers, &LayerPlan::segment); }

std::vector<int> Plan::tied_stages() const {
  std::set<int> tied;
  for (const TiePlan& tie : ties) {
    if (!tie.frozen && tie.layers.size() > 1) tied.insert(tie.stages.begin(), tie.stages.end());
  }
  return {tied.begin(), tied.end()};
}

}  // namespace strata
