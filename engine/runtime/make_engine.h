// Makers of engines, for those who may include torch: the engine's shared library and lua/.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "engine/comm/group.h"
#include "engine/comm/place.h"
#include "engine/comm/transport.h"
#include "engine/forecast/proved_programs.h"
#include "engine/job/job.h"
#include "engine/plan/plan.h"
#include "engine/runtime/engine.h"
#include "engine/runtime/engine_script.h"

namespace strata {

/// Every direction that training or evaluating the plan needs, in the order in which all ranks open
/// them: between neighbouring stages on different ranks, activations forward (channel 0) and
/// gradients back (channel 1).
std::vector<LinkSpec> LinksOf(const Plan& plan);

/// Every group of at least two ranks, in the order of Grid::Created(): "replica" (all ranks of one
/// data index), "data", "pipe" and "model" (ranks that differ on this axis only); then "world", and
/// those that hold tied parameters, in the order of keys.
std::vector<GroupSpec> GroupsOf(const Plan& plan);

/// This process (or thread) as one rank of the plan; the transport says which, `place` where it is
/// among the ranks of its machine: it takes the GPU of its local rank, and its part of the cores.
/// Collective: all ranks make their engines together. Sets the number of threads of the calling
/// thread, which then is the only one that may call the engine (but for Abort() and Position()).
///
/// `script` serves this rank alone and must outlive the engine; job and plan are copied.
/// `programs`: the plan's, as far as they were proved before; null: this rank proves them. Throws
/// ConfigError (what the layers or the data say) and WorldError.
std::unique_ptr<Engine> MakeRankEngine(const Job& job, const Plan& plan, EngineScript& script,
                                       std::unique_ptr<Transport> transport, const RankPlace& place,
                                       std::shared_ptr<ProvedPrograms> programs = nullptr);

/// All ranks of the plan as threads of this process. They live as long as the engine; calls come
/// from any one thread at a time. `script` serves all ranks and must outlive the engine. An
/// exception of one rank aborts the others and is rethrown once. A rank that the watchdog found
/// hanging in somebody's code cannot be ended: after a grace of some seconds its thread is left
/// behind, so that the caller gets the error and Close() returns. `flight`: a record for each rank,
/// or none.
std::unique_ptr<Engine> MakeThreadsEngine(const Job& job, const Plan& plan, EngineScript& script,
                                          std::span<FlightRing> flight = {});

}  // namespace strata
