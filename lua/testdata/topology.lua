-- Topologies, grids and partitions as scripts see them. (Their laws are tested in engine/plan.)
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

expect.errors{
  {function() strata.topology() end, "topology.lua:", "a number of ranks"},
  {function() strata.topology(0) end, "topology.lua:", "0"},
  {function() strata.topology(1.5) end, "a whole number of ranks", "1.5"},
  {function() strata.topology(2 ^ 40) end, "topology.lua:"},
  {function() strata.topology("pipe") end, "a number of ranks", '"pipe"'},
  {function() strata.topology{pipe = 0} end, "topology.lua:"},
  {function() strata.topology{pipe = "2"} end, "a whole number for pipe", '"2"'},
  {function() strata.topology{pipe = 2 ^ 20, data = 2 ^ 20} end, "topology.lua:"},
  {function() strata.topology{pip = 2} end, "pip"},
  {function() strata.topology{2, 2} end, "a table such as {pipe=1, data=0}"},
  {function() strata.topology({"a", "b"}, {2}) end, "topology.lua:"},
  {function() strata.topology({"a", "a"}, {2, 2}) end, "topology.lua:"},
  {function() strata.topology({"pipe", 7}, {2, 2}) end, "topology.lua:"},
  {function() strata.topology({"pipe"}, {"2"}) end, "topology.lua:"},
  {function() strata.topology("pipe", {2}) end, "a list of axes", '"pipe"'},
  {function() t:rank() end, "pipe"},
  {function() t:rank{pipe = 1} end, "topology.lua:", "data"},
  {function() t:rank{pipe = 1, data = 0, modle = 1} end, "modle", "model"},
  {function() t:rank{pipe = 2, data = 0, model = 0} end, "pipe"},
  {function() t:rank(7) end, "a table such as {pipe=1, data=0}", "the number 7"},
  {function() t:rank{pipe = 0.5, data = 0, model = 0} end, "whole number for pipe"},
  {function() t.rank({pipe = 0}) end, "expected a topology"},
  {function() t:coord(8) end, "8"},
  {function() t:coord(-1) end, "-1"},
  {function() t:coord(0.5) end, "a rank", "0.5"},
  {function() t:coord("0") end, "a rank", '"0"'},
  {function() t:coord() end, "a rank", "nothing"},
  {function() t:size() end, "an axis", "nothing"},
  {function() t:size(7) end, "an axis", "the number 7"},
  {function() t:filter{pipes = 0} end, '"pipes"', "pipe"},
  {function() t:filter(7) end, "a table such as", "the number 7"},
  {function() t:axis("pip", 0) end, '"pip"', "pipe"},
  {function() t:axis("pipe") end, "an index on the axis", "nothing"},
  {function() t:comm_lists() end, "an axis", "nothing"},
  {function() t:repr(24) end, "24"},
  {function() t:repr(0, {iner = "="}) end, "iner", "inner"},
  {function() t:repr(0, {inner = 7}) end, "inner", "the number 7"},
  {function() t:repr(0, {omit = "data"}) end, "topology.lua:"},
  {function() t:repr(0, {omit = {"dat"}}) end, "\"dat\"", "data"},
  {function() return t.dimensions end, 'has no "dimensions"', "dims"},
  {function() t.dims = {} end, "cannot be changed"},
}
expect.equal(strata.topology{pipe = 2} == 2, false)

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
expect.errors{
  {function() t:grid(8) end, "topology.lua:", "8"},
  {function() t:grid() end, "a rank", "nothing"},
  {function() g:stage_to_global(2) end, "stage"},
  {function() g:stage_to_global(-1) end, "-1"},
  {function() g:stage_to_global() end, "a stage", "nothing"},
  {function() g:stage_to_global(0, {data = 3}) end, "data", "3"},
  {function() g:stage_to_global(0, {dta = 0}) end, '"dta"', "data"},
  {function() return g.stage end, '"stage"', "stage_id"},
  {function() g.rank = 1 end, "cannot be changed"},
}

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
expect.equal(tostring(g), "rank 5 of pipe=2 data=2 model=2 (8 ranks): stage 1, data 0, model 1")

expect.equal(strata.partition.uniform(10, 4), {0, 3, 6, 8, 10})
expect.equal(strata.partition.uniform(3, 5), {0, 1, 2, 3, 3, 3})
expect.equal(strata.partition.balanced({1, 1, 1, 5}, 2), {0, 3, 4})
expect.equal(strata.partition.balanced({0.5, 0.5, 1}, 2), {0, 2, 3})
expect.equal(strata.partition.balanced({1, 1, 1, 5}, 2, {compat = "deepspeed"}), {0, 3, 4})
expect.errors{
  {function() strata.partition.uniform(10) end, "topology.lua:", "parts", "nothing"},
  {function() strata.partition.uniform(10, 0) end, "topology.lua:"},
  {function() strata.partition.balanced({1, -1}, 1) end, "topology.lua:"},
  {function() strata.partition.balanced({1, "x"}, 1) end, "topology.lua:"},
  {function() strata.partition.balanced({1}, 1, {compat = "deepsped"}) end, "deepspeed"},
  {function() strata.partition.balanced({1}, 1, {compt = "deepspeed"}) end, "compat"},
  {function() strata.partition.balanced({1}, 1.5) end, "whole number of parts"},
}
