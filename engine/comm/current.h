// The transport of the rank that the calling thread is, for calls that come from scripts.
#pragma once

#include "engine/comm/transport.h"

namespace strata {

/// Null outside of a rank.
Transport* CurrentTransport();

/// Makes `transport` the calling thread's while it lives.
class CurrentRank {
 public:
  explicit CurrentRank(Transport* transport);
  ~CurrentRank();
  CurrentRank(const CurrentRank&) = delete;
  CurrentRank& operator=(const CurrentRank&) = delete;
};

/// While one lives, the calling thread runs a script's functions to see what shapes they give:
/// collectives act as if there were one rank, since other ranks may not come.
class PlanningScope {
 public:
  PlanningScope();
  ~PlanningScope();
  PlanningScope(const PlanningScope&) = delete;
  PlanningScope& operator=(const PlanningScope&) = delete;
};
bool IsPlanning();

}  // namespace strata
