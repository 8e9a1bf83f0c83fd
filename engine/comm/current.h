// The current rank: which transport a script's call uses on the calling thread.
#pragma once

#include "engine/comm/transport.h"

namespace strata {

/// The transport of the calling thread's rank; null on a thread that runs no rank.
Transport* CurrentTransport();

/// While an object lives, `transport` is CurrentTransport() on the thread that made the object;
/// afterwards it is what it was before.
class CurrentRank {
 public:
  explicit CurrentRank(Transport* transport);
  ~CurrentRank();
  CurrentRank(const CurrentRank&) = delete;
  CurrentRank& operator=(const CurrentRank&) = delete;

 private:
  Transport* const before_;
};

/// While an object lives, IsPlanning() is true on its thread. The thread then calls a script's
/// functions only to learn their output shapes. Collectives in them must act as in a world of one
/// rank, since the other ranks may not make the same call.
class PlanningScope {
 public:
  PlanningScope();
  ~PlanningScope();
  PlanningScope(const PlanningScope&) = delete;
  PlanningScope& operator=(const PlanningScope&) = delete;
};
bool IsPlanning();

}  // namespace strata
