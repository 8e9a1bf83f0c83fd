// StepCosts: from what layers cost to what the simulator takes.
#pragma once

#include <string>
#include <vector>

#include "engine/plan/plan.h"
#include "engine/plan/plan_costs.h"
#include "engine/schedule/simulate/simulator.h"
#include "engine/spec/job/job.h"

namespace strata {

/// One direction between two ranks, for one of them while all others send too.
struct LinkRates {
  double latency = 0;    ///< seconds
  double bandwidth = 0;  ///< bytes per second; 0 = any number at once

  /// Of a message: while it occupies the link, and in all.
  double Transfer(double bytes) const { return bandwidth > 0 ? bytes / bandwidth : 0; }
  double Seconds(double bytes) const { return latency + Transfer(bytes); }
  bool operator==(const LinkRates&) const = default;
};

/// How fast the ranks are connected.
struct LinksRates {
  LinkRates pipe;  ///< between the ranks of neighbouring stages
  LinkRates data;  ///< between replicas
};

/// Between the ranks of a plan: stated ones, which threads do not need.
LinkRates NominalLink(const std::string& device);
LinksRates NominalLinks(const Plan& plan);

/// Costs of no stages: lists that are to have an entry per stage.
schedule::Costs NoCosts();

/// A stage's compute, which takes `factor` times as long.
void AddCompute(const StageCost& stage, double factor, schedule::Costs& costs);

/// The seconds of each stage's actions, of the messages between stages and of the reduction over
/// the replicas, norm included. Backward is I + W; R is as long as the forward of the recomputed
/// layers. All ranks wait for each other once a step, when all numbers of the step are summed,
/// before the update. So the update, with which the next step begins, and the zeroing of the
/// gradients are `begin`; and a simulated makespan of the lowered program is the time from step to
/// step. REQUIRES: the seconds of `costs` are set.
schedule::Costs StepCosts(const Job& job, const Plan& plan, const ModelCosts& costs,
                          const LinksRates& links = {});

}  // namespace strata
