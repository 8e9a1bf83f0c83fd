// The speeds of ranks, and what they mean for a plan. Speeds are given by the job or a host file
// (engine/job/rank_abilities.h), or measured before the first step (engine/runtime/time_rank.h).
#pragma once

#include <string>
#include <vector>

#include "engine/plan/plan.h"

namespace strata {

/// Plan::slowness for ranks of these speeds, which are by global rank. The replicas of a stage get
/// equal micro-batches and wait for each other, so the slowest of them sets the stage's pace. Empty
/// if all speeds are 1.
std::vector<double> SlownessOf(const Topology& topology, const std::vector<double>& speeds);

/// The speeds of ranks that did `rates` units of work a second, relative to the fastest. Equal
/// ranks differ by up to a tenth, so a speed from 0.9 on counts as 1; others are multiples of 0.05.
/// REQUIRES: all rates are above 0.
std::vector<double> RelativeSpeeds(const std::vector<double>& rates);

/// A text such as "1 on ranks 0 to 3, 0.5 on rank 4".
std::string SpeedsText(const std::vector<double>& speeds);

}  // namespace strata
