#include "engine/forecast/evaluate.h"

#include <algorithm>
#include <utility>

#include "engine/base/check.h"

namespace strata {
namespace {

using schedule::Kind;
using schedule::Program;
using schedule::Simulation;
using schedule::Step;

bool SumsGradients(const Program& program) {
  return std::ranges::any_of(program.rows, [](const std::vector<schedule::Action>& row) {
    return std::ranges::find(row, Kind::kReduceGrad, &schedule::Action::kind) != row.end();
  });
}

/// Raises ready[stage] to the second at which the stage's last W or B ends, where that is later.
void AddReady(const Program& program, const Simulation& simulation, std::vector<double>& ready) {
  schedule::RowWalk(program).OverAll([&](const Step& step) {
    if (!GivesWeightGrad(step.part.kind)) return;
    double& last = ready[step.stage()];
    last = std::max(last, simulation.times[step.rank][step.position].end);
  });
}

/// Simulates each kind of replicas and describes the slowest. Returns when the gradients of every
/// stage are complete on all replicas.
std::vector<double> AddPipeline(const Program& program, const Placed& placed,
                                StepEvaluation& evaluation) {
  std::vector<double> ready(placed.stages.size());
  for (const schedule::Costs& costs : placed.replicas) {
    const Simulation simulation = Simulate(program, costs);
    AddReady(program, simulation, ready);
    if (simulation.makespan < evaluation.pipeline) continue;
    evaluation.pipeline = simulation.makespan;
    evaluation.bubble = simulation.bubble;
    for (size_t r = 0; r < evaluation.ranks.size(); ++r) {
      RankForecast& rank = evaluation.ranks[r];
      rank.busy = simulation.busy[r];
      if (!simulation.times[r].empty()) rank.ready = simulation.times[r].back().end;
    }
  }
  return ready;
}

/// Adds the sums of each rank's stages, in the order in which their gradients are complete.
void AddSums(const Program& program, const Placed& placed, bool reduces,
             const std::vector<double>& ready, StepEvaluation& evaluation) {
  for (size_t r = 0; r < evaluation.ranks.size(); ++r) {
    RankForecast& rank = evaluation.ranks[r];
    std::vector<int> stages = schedule::StagesOfRank(program, static_cast<int>(r));
    std::ranges::sort(stages, {}, [&](int stage) { return ready[stage]; });
    double now = 0;
    for (const int stage : stages) {
      const StageEnd& end = placed.ends[stage];
      const double reduce = reduces ? 0 : end.reduce;
      now = std::max(now, ready[stage]) + reduce;
      rank.reduce += reduce;
      rank.update += end.update;
      rank.sent_replicas += end.sent;
    }
    rank.end = std::max(now, rank.ready);
  }
}

void AddUpdates(const Placed& placed, StepEvaluation& evaluation) {
  double agreed = 0;
  if (placed.agree) {
    for (const RankForecast& rank : evaluation.ranks) agreed = std::max(agreed, rank.end);
    agreed += *placed.agree;
  }
  for (RankForecast& rank : evaluation.ranks) {
    rank.end = std::max(rank.end, agreed) + rank.update;
    evaluation.step = std::max(evaluation.step, rank.end);
  }
}

void AddTraffic(const Program& program, const Placed& placed, StepEvaluation& evaluation) {
  const double micro_batches = program.micro_batches;
  const auto rank_of = [&](int s) -> RankForecast& {
    return evaluation.ranks[program.stage_ranks[s]];
  };
  for (int s = 0; s < program.stages(); ++s) {
    rank_of(s).sent_model += placed.stages[s].work().axis_bytes * micro_batches;
    if (s + 1 == program.stages() || !program.crosses_after(s)) continue;
    const double bytes = static_cast<double>(placed.stages[s].output_bytes) * micro_batches;
    for (const int end : {s, s + 1}) rank_of(end).sent_messages += bytes;  // and gradients back
  }
}

double RecomputeSeconds(const Program& program, const Placed& placed) {
  std::vector<double> seconds(static_cast<size_t>(program.ranks()));
  for (int s = 0; s < program.stages(); ++s) {
    seconds[program.stage_ranks[s]] += placed.stages[s].recompute.seconds * program.micro_batches;
  }
  return std::ranges::max(seconds);
}

}  // namespace

Evaluator::Evaluator(Program program)
    : program_(std::move(program)), reduces_(SumsGradients(program_)), peaks_(program_) {}

StepEvaluation Evaluator::Of(const Placed& placed) const {
  STRATA_CHECK(static_cast<int>(placed.stages.size()) == program_.stages() &&
               placed.ends.size() == placed.stages.size() &&
               static_cast<int>(placed.lasting.size()) == program_.ranks())
      << placed.stages.size() << " stages, " << placed.lasting.size() << " ranks";
  StepEvaluation evaluation;
  evaluation.ranks.resize(placed.lasting.size());
  evaluation.recompute = RecomputeSeconds(program_, placed);
  const std::vector<double> ready = AddPipeline(program_, placed, evaluation);
  AddSums(program_, placed, reduces_, ready, evaluation);
  AddUpdates(placed, evaluation);
  AddTraffic(program_, placed, evaluation);
  for (int r = 0; r < program_.ranks(); ++r) {
    RankMemory& memory = evaluation.ranks[r].memory;
    memory = peaks_.Of(placed.lasting[r], placed.stages);
    evaluation.memory = std::max(evaluation.memory, memory.total());
  }
  return evaluation;
}

Placed PlacedHere(const Job& job, const Plan& plan, const ModelCosts& costs,
                  std::vector<StageCost> stages, const std::vector<StageLinks>& links) {
  Placed placed;
  placed.replicas = {StepCosts(job, plan, costs, stages, links)};
  for (const double reduce : placed.replicas[0].reduce) placed.ends.push_back({.reduce = reduce});
  placed.lasting = LastingMemory(job, plan, costs, stages);
  placed.stages = std::move(stages);
  return placed;
}

Placed PlacedHere(const Job& job, const Plan& plan, const ModelCosts& costs) {
  return PlacedHere(job, plan, costs, StageCosts(costs, plan), LinksOfStages(plan));
}

}  // namespace strata
