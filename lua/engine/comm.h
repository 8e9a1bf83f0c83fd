// strata.comm: collectives for scripts. Part of the engine's shared library. Internal to lua/.
//
//   strata.comm.all_reduce(x, {axis="data", op="sum", async=true})
//   strata.comm.broadcast(x, {root=0}), all_gather(x), reduce_scatter(x), all_to_all(x), barrier{}
//   strata.comm.rank{axis="pipe"}, strata.comm.size{axis="pipe"}
//   strata.comm.init{backend="gloo"|"nccl"|"both", init_method="tcp://host:port", ...}
//
// The ranks of one axis take part: "pipe", "data", "model", "replica" (all ranks with one data
// index) or "world", the default; group="data" means the same as axis="data". The results are new
// tensors. all_gather concatenates along dim 0; reduce_scatter and all_to_all divide dim 0 into
// equal parts.
//
// In layers and losses, a sum, a gather and a reduce-scatter with axis="model" have the gradients
// of strata.model.reduce, gather and reduce_scatter. All other calls refuse a tensor that requires
// a gradient.
//
// With async=true a call returns a handle. h:wait() returns the result; h:wait(seconds) returns nil
// if that time is too short; h:done() is true once the result is there.
//
// In a job's functions the calls work on the job's ranks, and every rank must make the same calls.
// A script without a job must first call strata.comm.init, which connects it to the other
// processes.
#pragma once

#include <lua.hpp>

namespace strata::lua {

/// Fills strata.comm. Call it once per state. REQUIRES: protected mode.
void OpenComm(lua_State* L);

}  // namespace strata::lua
