// Builds the stages of a rank and forwards calls to their reducers and optimizers, stage by stage.
#include "engine/runtime/update/rank_stages.h"

#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/tensors/allocator.h"
#include "engine/base/tensors/dtype.h"
#include "engine/job/parameter_groups.h"
#include "engine/layers/parts.h"
#include "engine/runtime/stage/examiner.h"
#include "engine/runtime/update/model_axis.h"
#include "engine/runtime/watch/fault.h"

namespace strata {
namespace {

const Doing kStart = {-1, kStartAction};
const Doing kAverages = {-1, "SWAP_AVERAGES"};

/// Calls function(buffer) for the buffers of all layers of all stages, in order.
template <class Function>
void ForEachBuffer(const std::vector<OwnStage>& stages, const Function& function) {
  for (const OwnStage& own : stages) {
    for (const StageLayer& layer : own.stage->layers()) {
      for (LayerBuffer& buffer : layer.layer->buffers()) function(buffer.value);
    }
  }
}

/// Reorders the parameters of layers that are split into parts (parts.h). Parts list their
/// parameters part by part, whole layers in PyTorch's order. Sums, and lists that are compared,
/// must have the order of whole layers.
void OrderByWholeLayers(const std::vector<LayerSpec>& layers,
                        std::vector<PlacedParameter>& parameters) {
  if (!HasParts(layers)) return;
  const std::vector<LayerSpec> whole = InWhole(layers);
  std::vector<std::vector<ParameterSpec>> declared;
  size_t most = 0;  // most parameters in one layer
  for (const LayerSpec& layer : whole) {
    declared.push_back(ParametersOf(layer));
    most = std::max(most, declared.back().size());
  }
  for (PlacedParameter& parameter : parameters) {
    const bool is_part = PartNumber(layers[static_cast<size_t>(parameter.layer)].type) >= 0;
    const int number = LayerNumber(layers, parameter.layer);
    parameter.layer = number * static_cast<int>(most);
    if (!is_part) continue;
    const LayerSpec& layer = whole[static_cast<size_t>(number)];
    const std::string name = parameter.path.substr(LayerPath(layer, number).size() + 1);
    const std::vector<ParameterSpec>& all = declared[static_cast<size_t>(number)];
    parameter.layer +=
        static_cast<int>(std::ranges::find(all, name, &ParameterSpec::name) - all.begin());
  }
}

}  // namespace

RankStages::RankStages(const RankContext& context)
    : context_(context),
      replicas_(context.transport.FindGroup("data")),
      loss_scale_(context.job.precision.loss_scale),
      monitors_(context.job) {
  STRATA_CHECK(context.replicas == 1 || replicas_) << "no group of the replicas was opened";
  Rebuild(kStart);
}

void RankStages::Rebuild(const Doing& doing) {
  ties_.reset();
  parameters_.reset();
  own_.clear();
  kept_state_.clear();
  ReleaseFreeMemory();
  const Job& job = context_.job;
  const auto group_of = [&job](int layer, const std::string& parameter) {
    return FindParameterGroup(job.optimizer, job.layers, layer, parameter);
  };
  std::vector<PlacedParameter> placed;
  for (const StagePlan& place : context_.plan.stages) {
    if (place.rank != context_.pipe_rank) continue;
    auto stage =
        std::make_unique<Stage>(BuildStage(job, context_.plan, place.stage, context_.device,
                                           context_.script, context_.model_axis),
                                group_of);
    auto reducer =
        std::make_unique<GradientReducer>(place.stage, stage->parameters(), replicas_, job.zero > 0,
                                          ToScalarType(job.precision.reduce));
    auto optimizer =
        MakeOptimizer(job.optimizer, reducer->updated(), stage->parameters().parameters());
    const auto& parameters = stage->parameters().parameters();
    own_.push_back({std::move(stage), std::move(reducer), std::move(optimizer), placed.size()});
    placed.insert(placed.end(), parameters.begin(), parameters.end());
  }
  OrderByWholeLayers(job.layers, placed);
  context_.progress.set_stage(own_.front().stage->number());
  const AtMeeting meeting(context_.progress, doing);
  parameters_.emplace(std::move(placed), context_.speaks_for_replicas(), context_.model_axis,
                      context_.transport);
  for (OwnStage& own : own_) own.squares = SquaresOf(own);
  ties_.emplace(context_.plan, by_number(), context_.pipe_ranks, context_.transport);
}

std::vector<Stage*> RankStages::by_number() const {
  std::vector<Stage*> stages(context_.plan.stages.size());
  for (const OwnStage& own : own_) stages[own.stage->number()] = own.stage.get();
  return stages;
}

const Stage* RankStages::last() const {
  return own_.back().stage->is_last() ? own_.back().stage.get() : nullptr;
}

void RankStages::OnPassed(Stage& stage, int layer) {
  stage.parameters().FinishGradients(layer);
  own_.front().reducer->StartFrom(layer, waiting());
}

void RankStages::OnGradients(Stage& stage, std::span<double> squares, HostFetch& fetch) {
  const auto own = std::ranges::find(own_, &stage, [](const OwnStage& o) { return o.stage.get(); });
  STRATA_CHECK(own != own_.end()) << "stage " << stage.number();
  stage.parameters().FinishGradients();
  if (context_.model_axis) SumPartialGradients(stage.parameters(), *context_.model_axis);
  own->reducer->Start(waiting());
  if (!replicas_) own->squares.Take(squares, fetch);
}

void RankStages::FinishGradients(std::span<double> squares, HostFetch& fetch) {
  if (!replicas_) return;
  for (OwnStage& own : own_) {
    own.reducer->Await(context_.progress);
    own.squares.Take(squares, fetch);
    own.reducer->AverageState(context_.progress);
  }
}

GradientSquares RankStages::SquaresOf(const OwnStage& own) const {
  std::vector<GradientSquares::Part> parts;
  for (const ParameterShare& share : own.reducer->shares()) {
    const int64_t place = parameters_->first_chunk(own.first_parameter + share.parameter);
    if (place >= 0) parts.push_back({share.gradient, place + share.begin / kSquareChunk});
  }
  return GradientSquares(parts);
}

/// With what reducers may wait while the row runs; null if that could deadlock
/// (gradient_reducer.h).
Progress* RankStages::waiting() const {
  return own_.size() == 1 || replicas_are_even_ ? &context_.progress : nullptr;
}

/// Gathers the gradients of all stages. The caller must call a collective of all ranks next.
void RankStages::GatherGradients() {
  for (const OwnStage& own : own_) own.reducer->GatherGradients(context_.progress);
  context_.progress.WaitForAll();
}

std::vector<TensorDigest> RankStages::GradientDigests() {
  GatherGradients();
  auto digests = parameters_->Digests(ParameterTable::What::kGradients, context_.transport);
  DropGathered();
  return digests;
}

void RankStages::DropGathered() {
  for (const OwnStage& own : own_) own.reducer->DropGathered();
}

Value RankStages::GradientHistograms(double divisor) {
  GatherGradients();
  Value histograms = parameters_->Histograms(divisor, context_.transport);
  DropGathered();
  return histograms;
}

at::Tensor RankStages::CopyTensor(const std::string& path, ParameterTable::What what) {
  if (what == ParameterTable::What::kGradients) GatherGradients();
  context_.progress.WaitForAll();
  at::Tensor copy = parameters_->Copy(path, what);
  if (what == ParameterTable::What::kGradients) DropGathered();
  return copy;
}

void RankStages::Update(double lr_factor, double divisor) {
  for (const OwnStage& own : own_) own.optimizer->Step(lr_factor, divisor);
  for (const OwnStage& own : own_) own.reducer->GatherValues(context_.progress);
}

void RankStages::SwapAverages() {
  if (context_.job.optimizer.ema == 0) return;
  const AtWork at_work(context_.progress, kAverages);
  for (const OwnStage& own : own_) {
    own.optimizer->SwapAverages();
    own.stage->parameters().MarkCopiesStale();
  }
  for (const OwnStage& own : own_) own.reducer->GatherValues(context_.progress);
}

void RankStages::KeepState() {
  size_t next = 0;
  ForEachBuffer(own_, [&](const at::Tensor& value) {
    if (next == kept_state_.size()) kept_state_.push_back(at::empty_like(value));
    kept_state_[next++].copy_(value);
  });
}

void RankStages::RestoreState() {
  size_t next = 0;
  ForEachBuffer(own_, [&](const at::Tensor& value) { value.copy_(kept_state_.at(next++)); });
}

bool RankStages::has_finite_weights() const {
  return std::ranges::all_of(own_, [](const OwnStage& own) {
    return std::ranges::all_of(own.stage->parameters().parameters(), &IsFinite,
                               &PlacedParameter::value);
  });
}

}  // namespace strata
