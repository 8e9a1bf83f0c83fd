// Functions that make engines, for code that may include torch: the engine's shared library and
// lua/.
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

/// All links that training and evaluating the plan need, in the order in which all ranks open them.
/// Between neighbouring stages on different ranks, activations go forward on channel 0 and
/// gradients back on channel 1.
std::vector<LinkSpec> LinksOf(const Plan& plan);

/// All groups of at least two ranks, in the order of Grid::Created(): "replica" (all ranks of one
/// data index), then "data", "pipe" and "model" (ranks that differ on this axis only), then
/// "world", and last the groups of ranks that hold tied parameters, in the order of keys.
std::vector<GroupSpec> GroupsOf(const Plan& plan);

/// Makes an engine in which this process (or thread) is one rank of the plan. The transport says
/// which rank; `place` gives its place among the ranks of its machine, which decides its GPU and
/// its share of the cores. Collective: all ranks make their engines together. Sets the number of
/// threads of the calling thread. Only that thread may call the engine afterwards, except for
/// Abort() and Position().
///
/// `script` serves this rank alone and must outlive the engine; job and plan are copied.
/// `programs`: programs of the plan that are already proved; null: this rank proves them itself.
/// Throws ConfigError (for what the layers or the data say) and WorldError.
std::unique_ptr<Engine> MakeRankEngine(const Job& job, const Plan& plan, EngineScript& script,
                                       std::unique_ptr<Transport> transport, const RankPlace& place,
                                       std::shared_ptr<ProvedPrograms> programs = nullptr);

/// Makes an engine that runs all ranks of the plan as threads of this process. The threads live as
/// long as the engine. Any thread may call the engine, one at a time. `script` serves all ranks and
/// must outlive the engine. If one rank throws, the others are aborted, and the exception is
/// rethrown once. A rank that hangs in foreign code cannot be stopped: some seconds after the
/// watchdog has reported it, its thread is detached, so that the caller gets the error and Close()
/// returns. `flight`: one flight record per rank, or empty.
std::unique_ptr<Engine> MakeThreadsEngine(const Job& job, const Plan& plan, EngineScript& script,
                                          std::span<FlightRing> flight = {});

}  // namespace strata
