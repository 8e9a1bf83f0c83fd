local strata = require "strata"
local expect = require "expect"

local t = strata.topology({"pipe", "data", "model"}, {2, 2, 2})
expect.equal(t.axes, {"pipe", "data", "model"})
expect.equal(t.dims, {2, 2, 2})
expect.equal(t.world_size, 8)
expect.equal(t:rank{pipe = 1, data = 0, model = 1}, 5)
expect.equal(t:coord(5), {pipe = 1, data = 0, model = 1})
expect.equal(t:size("data"), 2)
expect.equal(t:size("nothing"), 0)
expect.equal(t:filter{pipe = 1}, {4, 5, 6, 7})
expect.equal(t:filter{}, {0, 1, 2, 3, 4, 5, 6, 7})
expect.equal(t:axis("data", 1), {2, 3, 6, 7})
expect.equal(t:comm_lists("model"), {{0, 1}, {2, 3}, {4, 5}, {6, 7}})
expect.equal(t:comm_lists("nothing"), {})
expect.equal(t:repr(5), "model_01")
expect.equal(t:repr(5, {omit = {"data"}, inner = "=", outer = "/"}), "pipe=01/model=01")
expect.equal(tostring(t), "pipe=2 data=2 model=2 (8 ranks)")
expect.equal(t == strata.topology{model = 2, data = 2, pipe = 2}, true)
expect.equal(t == strata.topology(8), false)

expect.equal(strata.topology(12).axes, {"pipe", "data"})
expect.equal(strata.topology(12).dims, {6, 2})
expect.equal(strata.topology{pipe = 2, data = 3}.axes, {"pipe", "data"})

expect.error(function() t:rank{pipe = 1} end, "topology.lua:", "data")
expect.error(function() t:rank{pipe = 1, data = 0, modle = 1} end, "modle", "model")
expect.error(function() t:rank{pipe = 2, data = 0, model = 0} end, "pipe")
expect.error(function() t:rank(7) end, "a table such as {pipe=1, data=0}", "the number 7")
expect.error(function() t:rank{pipe = 0.5, data = 0, model = 0} end, "whole number for pipe")
expect.error(function() t:coord(8) end, "8")
expect.error(function() t:coord(-1) end, "-1")
expect.error(function() t:coord() end, "a rank", "nothing")
expect.error(function() t:axis("nothing", 0) end, "nothing")
expect.error(function() t:repr(0, {iner = "="}) end, "iner", "inner")
expect.error(function() strata.topology(0) end, "topology.lua:")
expect.error(function() strata.topology({"a", "b"}, {2}) end, "topology.lua:")
expect.error(function() strata.topology({"a", "a"}, {2, 2}) end, "topology.lua:")
expect.error(function() strata.topology{pipe = 0} end, "topology.lua:")
expect.error(function() strata.topology{pip = 2} end, "pip")
expect.error(function() strata.topology("pipe") end, "number of ranks")
expect.error(function() return t.dimensions end, 'has no "dimensions"', "dims")
expect.error(function() t.dims = {} end, "cannot be changed")
expect.error(function() t.rank({pipe = 0}) end, "expected a topology")

local g = t:grid(5)
expect.equal(g.rank, 5)
expect.equal(g.stage_id, 1)
expect.equal(g.data_parallel_id, 0)
expect.equal(g.model_parallel_id, 1)
expect.equal(g.is_first_stage, false)
expect.equal(g.is_last_stage, true)
expect.equal(g.sizes, {pipe = 2, data = 2, model = 2})
expect.equal(g.topology == t, true)
expect.equal(g.groups, {pipe = {1, 5}, data = {5, 7}, slice = {4, 5}, model = {0, 1, 4, 5}})
expect.equal(g.p2p_groups[1], {0, 4})
expect.equal(#g.p2p_groups, 8)
expect.equal(#g.created, 14)
expect.equal(g:stage_to_global(0), 1)
expect.equal(g:stage_to_global(1, {data = 1}), 7)
expect.error(function() g:stage_to_global(2) end, "stage")

-- The getters of DeepSpeed's grid and of an `mpu`.
for name, value in pairs {
  stage_id = 1, data_parallel_id = 0, global_rank = 5,
  pipe_parallel_rank = 1, pipe_parallel_world_size = 2, pipe_parallel_group = {1, 5},
  data_parallel_rank = 0, data_parallel_world_size = 2, data_parallel_group = {5, 7},
  slice_parallel_rank = 1, slice_parallel_world_size = 2, slice_parallel_group = {4, 5},
  -- "Model parallel" is DeepSpeed's name for the whole replica.
  model_parallel_rank = 3, model_parallel_world_size = 4, model_parallel_group = {0, 1, 4, 5},
} do
  expect.equal(g["get_" .. name](g), value)
end
expect.error(function() return g.get_pipe_paralel_rank end, "get_pipe_parallel_rank")
expect.error(function() t:grid(8) end, "topology.lua:")
expect.equal(tostring(g), "rank 5 of pipe=2 data=2 model=2 (8 ranks): stage 1, data 0, model 1")
