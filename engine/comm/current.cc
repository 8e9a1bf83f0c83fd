// A rank is a thread, so its transport is thread-local.
#include "engine/comm/current.h"

namespace strata {
namespace {

thread_local Transport* current = nullptr;
thread_local int planning = 0;

}  // namespace

Transport* CurrentTransport() { return current; }

CurrentRank::CurrentRank(Transport* transport) : before_(current) { current = transport; }
CurrentRank::~CurrentRank() { current = before_; }

PlanningScope::PlanningScope() { ++planning; }
PlanningScope::~PlanningScope() { --planning; }
bool IsPlanning() { return planning > 0; }

}  // namespace strata
