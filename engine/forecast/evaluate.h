// Evaluate: the seconds of a step and the bytes of its ranks, for a program on a cluster. Every
// forecast and every search uses it; the machine at hand is a cluster of one machine.
//
// A Placed says in numbers all that matters of a plan and a cluster: what each stage costs, what
// its actions and messages take there, what follows when its gradients are complete, and what each
// rank holds from step to step. PlacedHere() makes it from a plan on this machine, and PlacedOn()
// (search/cluster/cluster_forecast.h) from a candidate on a described cluster. Evaluate() simulates
// the program with these numbers, appends the sums and the update, and walks over the rows for the
// memory. The time is linear in the actions of the program.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "engine/forecast/memory_forecast.h"
#include "engine/forecast/step_costs.h"
#include "engine/job/job.h"
#include "engine/plan/plan.h"
#include "engine/schedule/program.h"
#include "engine/schedule/simulator.h"

namespace strata {

/// What follows on a stage's rank once the gradients of the stage are complete.
struct StageEnd {
  /// Seconds of summing gradients over the replicas; with ZeRO also of gathering values. It begins
  /// when the rank's sum before it has ended, and other stages of the rank compute meanwhile.
  double reduce = 0;
  double update = 0;  ///< seconds of the optimizer step, unless they are part of Costs::begin
  double sent = 0;    ///< bytes that each replica sends
};

/// A plan on a cluster, as numbers.
struct Placed {
  std::vector<StageCost> stages;
  /// The seconds of actions and messages, one entry for each kind of replicas that differ. Replicas
  /// wait for each other when gradients are summed.
  std::vector<schedule::Costs> replicas;
  std::vector<StageEnd> ends;  ///< of each stage
  /// If set, all ranks wait for each other before the update, and agreeing takes so many seconds.
  std::optional<double> agree;
  std::vector<RankMemory> lasting;  ///< by rank of the pipe axis: LastingMemory()
};

/// The forecast of one rank of the pipe axis; all its replicas do the same.
struct RankForecast {
  double busy = 0;    ///< seconds of compute
  double ready = 0;   ///< the second at which its last backward ends
  double reduce = 0;  ///< seconds of its stages' StageEnd::reduce
  double update = 0;  ///< seconds of the optimizer step
  double end = 0;     ///< the second at which its step ends
  RankMemory memory;

  double sent_messages = 0;  ///< bytes over pipe links in a step
  double sent_replicas = 0;  ///< bytes to its replicas in a step
  double sent_model = 0;     ///< bytes along the model axis in a step
};

struct StepEvaluation {
  double step = 0;       ///< seconds from step to step
  double pipeline = 0;   ///< the part of it until the last backward ends
  double bubble = 0;     ///< mean share of the pipeline time in which ranks wait
  double recompute = 0;  ///< seconds of recomputation on the busiest rank
  int64_t memory = 0;    ///< bytes of the fullest rank
  std::vector<RankForecast> ranks;
};

/// A program that is ready to be evaluated with many Placeds.
class Evaluator {
 public:
  /// `program`: compute only, or lowered. A lowered program sums the gradients by actions of its
  /// own, so StageEnd::reduce does not count for it. Throws ConfigError as Simulate() does.
  explicit Evaluator(schedule::Program program);
  Evaluator(const Evaluator&) = delete;

  const schedule::Program& program() const { return program_; }
  /// REQUIRES: `placed` has an entry for each stage and rank of the program.
  StepEvaluation Of(const Placed& placed) const;

 private:
  const schedule::Program program_;
  const bool reduces_;  ///< true if the program sums gradients itself
  const RowPeaks peaks_;
};

/// Evaluates a program once.
inline StepEvaluation Evaluate(const Placed& placed, schedule::Program program) {
  return Evaluator(std::move(program)).Of(placed);
}

/// The plan on this machine. `costs`: with seconds. `links`: LinksOfStages(); empty: messages take
/// no time. `stages`: StageCosts(). The update is part of Costs::begin (step_costs.h).
Placed PlacedHere(const Job& job, const Plan& plan, const ModelCosts& costs,
                  std::vector<StageCost> stages, const std::vector<StageLinks>& links);
/// The same with the stages' costs and links of the plan.
Placed PlacedHere(const Job& job, const Plan& plan, const ModelCosts& costs);

}  // namespace strata
