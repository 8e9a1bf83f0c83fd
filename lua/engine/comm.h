// strata.comm: collectives for scripts. Part of the engine's shared library. Internal to lua/.
//
//   strata.comm.all_reduce(x, {axis="data", op="sum", async=true})
//   strata.comm.broadcast(x, {root=0}), all_gather(x), reduce_scatter(x), all_to_all(x), barrier{}
//   strata.comm.rank{axis="pipe"}, strata.comm.size{axis="pipe"}
//   strata.comm.init{backend="gloo"|"nccl"|"both", init_method="tcp://host:port", ...}
//
// The ranks of an axis take part: "pipe", "data", "model", "replica" (all ranks of one data index)
// or "world", the default; group="data" says the same as axis="data". The results are new tensors.
// all_gather joins along dim 0; reduce_scatter and all_to_all cut dim 0.
//
// In layers and losses, a sum, a gather and a reduce-scatter with axis="model" have gradients:
// those of strata.model.reduce, gather and reduce_scatter. All others refuse a tensor that wants
// one.
//
// With async=true a call gives a handle. h:wait() gives the result, h:wait(seconds) nil when that
// is too short, h:done() whether the result is there.
//
// In a job's functions they work on the job's ranks; every rank must make the same calls. In a
// script that runs by itself strata.comm.init comes first and meets the other processes.
#pragma once

#include <lua.hpp>

namespace strata::lua {

/// Fills strata.comm. Once per state. REQUIRES: protected mode.
void OpenComm(lua_State* L);

}  // namespace strata::lua
