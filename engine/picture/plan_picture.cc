#include "engine/picture/plan_picture.h"

#include <algorithm>
#include <limits>

#include "engine/base/check.h"
#include "engine/base/median.h"
#include "engine/base/text.h"
#include "engine/plan/plan_text.h"
#include "engine/schedule/row_walk.h"

namespace strata::picture {
namespace {

using schedule::RankTrace;
using schedule::Trace;
using schedule::TracedAction;

std::vector<std::string> Facts(const Plan& plan) {
  const Topology& topology = plan.topology;
  std::string grid = Str("pipe ", topology.Size(kPipeAxis), " x data ", topology.Size(kDataAxis),
                         " x model ", topology.Size(kModelAxis));
  return {
      Str(Plural(CutNamesOf(plan).layers(), "layer"), ", ", Plural(plan.parameters, "parameter"),
          ", cuts ", CutsText(plan)),
      Str(grid, " on ", plan.device, ", over ", plan.transport, "; schedule ", plan.schedule, "; ",
          Plural(plan.batch.micro_batches, "micro-batch"), " of ", plan.batch.micro_batch_size)};
}

Stage StageOf(const StagePlan& plan, const CutNames& names, const StageCost& cost,
              bool in_seconds) {
  const Work work = cost.work();
  return {.rank = plan.rank,
          .layers = names.Range(plan.begin, plan.end),
          .parameters = plan.parameters,
          .cost = in_seconds ? work.seconds : work.flops,
          .input_bytes = cost.input_bytes,
          .output_bytes = cost.output_bytes};
}

void AddStages(const Plan& plan, const std::vector<StageCost>& costs, bool in_seconds,
               Picture& picture) {
  const CutNames names = CutNamesOf(plan);
  picture.cost_unit = in_seconds ? "s" : "FLOP";
  for (size_t s = 0; s < costs.size(); ++s) {
    picture.stages.push_back(StageOf(plan.stages[s], names, costs[s], in_seconds));
  }
}

/// The first action of `step` and one past the last.
std::pair<size_t, size_t> RangeOfStep(const RankTrace& rank, int64_t step) {
  const auto [begin, end] = std::ranges::equal_range(rank.actions, step, {}, &TracedAction::step);
  return {begin - rank.actions.begin(), end - rank.actions.begin()};
}

/// The earliest start of the step on any rank.
double BeginOfStep(const Trace& trace, int64_t step) {
  double begin = std::numeric_limits<double>::max();
  for (const RankTrace& rank : trace.ranks) {
    const auto [first, end] = RangeOfStep(rank, step);
    if (first < end) begin = std::min(begin, rank.actions[first].start);
  }
  return begin;
}

double DurationOfStep(const Trace& trace, int64_t step) {
  double last = 0;
  for (const RankTrace& rank : trace.ranks) {
    const auto [first, end] = RangeOfStep(rank, step);
    if (first < end) last = std::max(last, rank.actions[end - 1].end);
  }
  return last - BeginOfStep(trace, step);
}

int64_t MedianStep(const Trace& trace) {
  std::vector<std::pair<double, int64_t>> steps;
  for (int64_t step = trace.first_step(); step <= trace.last_step(); ++step) {
    steps.emplace_back(DurationOfStep(trace, step), step);
  }
  return Median(std::move(steps)).second;
}

Lane MeasuredLane(const RankTrace& rank, int64_t step, double zero) {
  Lane lane{.rank = rank.rank};
  const auto [first, end] = RangeOfStep(rank, step);
  if (first == end) return lane;
  lane.memory_before = rank.actions[first > 0 ? first - 1 : first].memory;
  double before = 0;
  for (size_t i = first; i < end; ++i) {
    const TracedAction& traced = rank.actions[i];
    const double last = std::max(before, traced.end - zero);
    // clamp(), since sums of doubles may be off by their last bit.
    const double begin = std::clamp(traced.start + traced.waited - zero, before, last);
    lane.actions.push_back(traced.action);
    lane.times.push_back({begin, last});
    lane.memory.push_back(traced.memory);
    before = last;
  }
  if (std::ranges::count(lane.memory, 0) == std::ssize(lane.memory)) lane.memory.clear();
  return lane;
}

}  // namespace

std::vector<StageBytes> BytesOfStages(const Job& job, const Plan& plan, const ModelCosts& costs) {
  const int sharers = job.zero > 0 ? std::max(1, plan.topology.Size(kDataAxis)) : 1;
  std::vector<StageBytes> bytes;
  for (const StageCost& stage : StageCosts(costs, plan)) {
    const double state = costs.state_bytes * static_cast<double>(stage.parameters) +
                         static_cast<double>(stage.extra_state_bytes);
    bytes.push_back({.always = stage.weight_bytes + stage.gradient_bytes + stage.buffer_bytes +
                               static_cast<int64_t>(state / sharers),
                     .held = {stage.kept_bytes, stage.recomputed_bytes, stage.deferred_bytes}});
  }
  return bytes;
}

Timeline ForecastTimeline(const schedule::Program& program, const schedule::Simulation& simulation,
                          bool in_seconds, const std::vector<StageBytes>& bytes) {
  STRATA_CHECK(static_cast<int>(bytes.size()) == program.stages());
  Timeline timeline{.name = "predicted", .in_seconds = in_seconds, .lanes = {}};
  const schedule::RowWalk walk(program);
  for (int rank = 0; rank < program.ranks(); ++rank) {
    Lane lane{.rank = rank};
    for (const int stage : StagesOfRank(program, rank)) lane.memory_before += bytes[stage].always;
    int64_t memory = lane.memory_before;
    walk.Over(rank, [&](const schedule::Step& step) {
      memory += step.Change(bytes[step.stage()].held);
      if (!step.ends_action) return;
      lane.actions.push_back(program.rows[rank][step.position]);
      lane.times.push_back(simulation.times[rank][step.position]);
      lane.memory.push_back(memory);
    });
    timeline.lanes.push_back(std::move(lane));
  }
  return timeline;
}

Picture PlanPicture(const Job& job, const Plan& plan, const StepForecast& forecast) {
  Picture picture;
  picture.title = job.name;
  picture.facts = Facts(plan);
  for (const LayerPlan& layer : ShownLayers(plan)) {
    picture.layers.push_back(
        {layer.path, layer.type, FormatShapes(layer.output), layer.parameters, layer.stage});
  }
  const bool in_seconds = forecast.is_measured();
  AddStages(plan, forecast.stages, in_seconds, picture);
  const schedule::Simulation simulation =
      in_seconds ? forecast.simulation : schedule::Simulate(forecast.program);
  picture.timelines = {ForecastTimeline(forecast.program, simulation, in_seconds,
                                        BytesOfStages(job, plan, forecast.costs))};
  return picture;
}

Timeline MeasuredTimeline(const Trace& trace) {
  STRATA_CHECK(!trace.empty());
  const int64_t step = MedianStep(trace);
  const double zero = BeginOfStep(trace, step);
  Timeline timeline{.name = Str("measured, step ", step), .in_seconds = true, .lanes = {}};
  for (const RankTrace& rank : trace.ranks) {
    timeline.lanes.push_back(MeasuredLane(rank, step, zero));
  }
  return timeline;
}

}  // namespace strata::picture
