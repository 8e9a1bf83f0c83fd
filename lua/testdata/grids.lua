-- Topologies and grids compared with simple implementations of DeepSpeed's rules, and their errors.
local strata = require "strata"
local expect = require "expect"

-- strata.topology(n): prime factors in descending order, given to pipe and data in turn.
local function dealt(n)
  local factors, rest, divisor = {}, n, 2
  while rest > 1 do
    while rest % divisor == 0 do
      factors[#factors + 1] = divisor
      rest = rest / divisor
    end
    divisor = divisor + 1
  end
  local pipe, data = 1, 1
  for i, factor in ipairs(factors) do
    if i % 2 == 1 then pipe = pipe * factor else data = data * factor end
  end
  return pipe, data
end
for n = 1, 200 do
  local t = strata.topology(n)
  local pipe, data = dealt(n)
  expect.equal(t.axes, {"pipe", "data"})
  expect.equal(t.dims, {pipe, data})
end

-- Three ways to write the same topology.
for pipe = 1, 3 do
  for data = 1, 3 do
    for model = 1, 3 do
      local t = strata.topology({"pipe", "data", "model"}, {pipe, data, model})
      expect.equal(t == strata.topology{model = model, pipe = pipe, data = data}, true)
      expect.equal(t ~= strata.topology({"data", "pipe", "model"}, {data, pipe, model}), true)
      expect.equal(tostring(t), ("pipe=%d data=%d model=%d (%d rank%s)"):format(pipe, data, model, t.world_size,
        t.world_size == 1 and "" or "s"))
      -- parallel takes a topology; the plan has the same grid.
      if data == 1 and model == 1 then
        local job = strata.job{
          input = {shape = {4}}, layers = strata.times(3, function() return strata.nn.Linear{4, 4} end),
          parallel = t, batch = {micro_batches = 1, micro_batch_size = 1}, device = "cpu",
        }
        expect.equal(job:plan{}.topology == t, true)
      end
    end
  end
end
expect.equal(strata.topology{pipe = 2} == strata.topology{pipe = 2, data = 1}, false)
expect.equal(strata.topology{pipe = 2} == 2, false)

-- repr(rank) shows the axes that are not omitted, each with an index of two digits.
local t = strata.topology({"pipe", "data", "model"}, {2, 3, 4})
for rank = 0, t.world_size - 1 do
  local c = t:coord(rank)
  expect.equal(t:repr(rank), ("model_%02d"):format(c.model))
  expect.equal(t:repr(rank, {omit = {}}), ("pipe_%02d-data_%02d-model_%02d"):format(c.pipe, c.data, c.model))
  expect.equal(t:repr(rank, {omit = {"model"}, inner = "", outer = ""}), ("pipe%02ddata%02d"):format(c.pipe, c.data))
  expect.equal(t:repr(rank, {omit = {"pipe", "data", "model"}}), "")
end
local wide = strata.topology({"model"}, {101})
expect.equal(wide:repr(100), "model_100")
expect.equal(wide:repr(7), "model_07")

-- Filters: an empty one returns all ranks, a full one returns one; a too large index returns none or is refused.
expect.equal(#t:filter{}, 24)
for rank = 0, 23 do expect.equal(t:filter(t:coord(rank)), {rank}) end
expect.equal(t:filter{pipe = 1, model = 0}, {12, 16, 20})
expect.equal(t:axis("pipe", 0), t:filter{pipe = 0})

-- Groups of each kind contain every rank once.
local function covers(lists, size)
  local seen = {}
  for _, list in ipairs(lists) do
    for _, rank in ipairs(list) do
      if seen[rank] then return false end
      seen[rank] = true
    end
  end
  for rank = 0, size - 1 do
    if not seen[rank] then return false end
  end
  return true
end
for _, axis in ipairs(t.axes) do expect.equal(covers(t:comm_lists(axis), 24), true) end
local by_kind = {pipe = {}, data = {}, slice = {}, model = {}}
for rank = 0, 23 do
  local g, c = t:grid(rank), t:coord(rank)
  for kind, lists in pairs(by_kind) do
    local list = g.groups[kind]
    if list[1] == rank then lists[#lists + 1] = list end
    for i = 2, #list do expect.equal(list[i - 1] < list[i], true) end
  end
  expect.equal(g.groups.pipe, t:filter{data = c.data, model = c.model})
  expect.equal(g.groups.data, t:filter{pipe = c.pipe, model = c.model})
  expect.equal(g.groups.slice, t:filter{pipe = c.pipe, data = c.data})
  expect.equal(g.groups.model, t:filter{data = c.data})
  expect.equal(g.sizes, {pipe = 2, data = 3, model = 4})
  -- There is a pair for each rank and the next one of its pipe; the last one pairs with the first.
  expect.equal(#g.p2p_groups, 24)
  expect.equal(tostring(g):find(("rank %d of "):format(rank), 1, true), 1)
end
for _, lists in pairs(by_kind) do expect.equal(covers(lists, 24), true) end

-- An axis that a grid lacks has size 1.
local flat = strata.topology{data = 3}:grid(2)
expect.equal(flat.stage_id, 0)
expect.equal(flat.data_parallel_id, 2)
expect.equal(flat.is_first_stage and flat.is_last_stage, true)
expect.equal(flat.sizes, {pipe = 1, data = 3, model = 1})

expect.errors{
  {function() strata.topology() end, "grids.lua:", "a number of ranks"},
  {function() strata.topology(0) end, "0"},
  {function() strata.topology(-4) end, "-4"},
  {function() strata.topology(1.5) end, "a whole number of ranks", "1.5"},
  {function() strata.topology(2 ^ 40) end, "grids.lua:"},
  {function() strata.topology("2x2") end, "a number of ranks", '"2x2"'},
  {function() strata.topology{pipe = -1} end, "pipe", "-1"},
  {function() strata.topology{pipe = "2"} end, "a whole number for pipe", '"2"'},
  {function() strata.topology{pipe = 2 ^ 20, data = 2 ^ 20} end, "grids.lua:"},
  {function() strata.topology{2, 2} end, "a table such as {pipe=1, data=0}"},
  {function() strata.topology{dat = 2} end, '"dat"', "data"},
  {function() strata.topology({"pipe"}, {2, 2}) end, "grids.lua:"},
  {function() strata.topology({"pipe", "pipe"}, {2, 2}) end, "pipe"},
  {function() strata.topology({"pipe", 7}, {2, 2}) end, "grids.lua:"},
  {function() strata.topology({""}, {2}) end, "grids.lua:"},
  {function() strata.topology({"pipe"}, {0}) end, "pipe", "0"},
  {function() strata.topology({"pipe"}, {"2"}) end, "grids.lua:"},
  {function() strata.topology("pipe", {2}) end, "a list of axes", '"pipe"'},
  {function() t:rank() end, "pipe"},
  {function() t:rank{} end, "pipe"},
  {function() t:rank{pipe = 0, data = 0} end, "model"},
  {function() t:rank{pipe = 0, data = 3, model = 0} end, "data", "3"},
  {function() t:rank{pipe = -1, data = 0, model = 0} end, "pipe", "-1"},
  {function() t:rank{pipe = 0, data = 0, model = 0, expert = 0} end, "expert"},
  {function() t:coord(24) end, "24"},
  {function() t:coord(0.5) end, "a rank", "0.5"},
  {function() t:coord("0") end, "a rank", '"0"'},
  {function() t:size() end, "an axis", "nothing"},
  {function() t:size(7) end, "an axis", "the number 7"},
  {function() t:filter{pipes = 0} end, '"pipes"', "pipe"},
  {function() t:filter(7) end, "a table such as", "the number 7"},
  {function() t:axis("pipe") end, "an index on the axis", "nothing"},
  {function() t:axis("pip", 0) end, '"pip"', "pipe"},
  {function() t:comm_lists() end, "an axis", "nothing"},
  {function() t:repr(24) end, "24"},
  {function() t:repr(0, {omit = "data"}) end, "grids.lua:"},
  {function() t:repr(0, {outter = "-"}) end, '"outter"', "outer"},
  {function() t:repr(0, {omit = {"dat"}}) end, "\"dat\"", "data"},
  {function() t:repr(0, {inner = 7}) end, "inner", "the number 7"},
  {function() t:grid(24) end, "24"},
  {function() t:grid() end, "a rank", "nothing"},
  {function() t:grid(0):stage_to_global(2) end, "2"},
  {function() t:grid(0):stage_to_global(-1) end, "-1"},
  {function() t:grid(0):stage_to_global() end, "a stage", "nothing"},
  {function() t:grid(0):stage_to_global(0, {data = 3}) end, "data", "3"},
  {function() t:grid(0):stage_to_global(0, {dta = 0}) end, '"dta"', "data"},
  {function() return t:grid(0).stage end, '"stage"', "stage_id"},
  {function() t:grid(0).rank = 1 end, "cannot be changed"},
}
