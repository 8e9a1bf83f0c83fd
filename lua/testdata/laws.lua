-- Properties of the inspection functions, on random topologies, weights and programs, compared with the
-- simplest implementations.
local strata = require "strata"
local expect = require "expect"

local AXES = {"pipe", "data", "model", "expert"}

local function random_topology()
  local axes, dims = {}, {}
  for i = 1, math.random(4) do
    axes[i], dims[i] = AXES[i], math.random(4)
  end
  return strata.topology(axes, dims)
end

local function same_index(coord, fixed)
  for axis, index in pairs(fixed) do
    if coord[axis] ~= index then return false end
  end
  return true
end

-- A rank and its coordinates identify each other; the last axis varies fastest.
for _ = 1, 50 do
  local t = random_topology()
  local size = 1
  for _, dim in ipairs(t.dims) do size = size * dim end
  expect.equal(t.world_size, size)
  local before
  for rank = 0, size - 1 do
    local coord = t:coord(rank)
    expect.equal(t:rank(coord), rank)
    local number = 0
    for i, axis in ipairs(t.axes) do
      expect.equal(coord[axis] >= 0 and coord[axis] < t.dims[i], true)
      number = number * t.dims[i] + coord[axis]
    end
    expect.equal(number, rank)
  end
end

-- A filter returns the ranks whose coordinates match, in order.
for _ = 1, 50 do
  local t = random_topology()
  local fixed = {}
  for i, axis in ipairs(t.axes) do
    if math.random() < 0.5 then fixed[axis] = math.random(t.dims[i]) - 1 end
  end
  local wanted = {}
  for rank = 0, t.world_size - 1 do
    if same_index(t:coord(rank), fixed) then wanted[#wanted + 1] = rank end
  end
  expect.equal(t:filter(fixed), wanted)
end

-- If an axis has more than one index, its lists contain each rank once. The ranks of a list differ in that
-- axis alone.
for _ = 1, 50 do
  local t = random_topology()
  for i, axis in ipairs(t.axes) do
    local seen, lists = {}, t:comm_lists(axis)
    for _, list in ipairs(lists) do
      expect.equal(#list, t.dims[i])
      local first = t:coord(list[1])
      for k, rank in ipairs(list) do
        expect.equal(seen[rank], nil)
        seen[rank] = true
        local coord = t:coord(rank)
        expect.equal(coord[axis], k - 1)
        coord[axis] = first[axis]
        expect.equal(t:rank(coord), list[1])
      end
    end
    local count = 0
    for _ in pairs(seen) do count = count + 1 end
    expect.equal(count == t.world_size or (count == 0 and t.dims[i] == 1), true)
    for index = 0, t.dims[i] - 1 do
      expect.equal(t:axis(axis, index), t:filter{[axis] = index})
    end
  end
end

-- A grid: a rank's own groups contain it, and stage_to_global returns the ranks of its stage.
for _ = 1, 20 do
  local t = strata.topology{pipe = math.random(3), data = math.random(3), model = math.random(2)}
  for rank = 0, t.world_size - 1 do
    local g, coord = t:grid(rank), t:coord(rank)
    expect.equal(g.rank, rank)
    expect.equal(g.stage_id, coord.pipe)
    expect.equal(g.data_parallel_id, coord.data)
    expect.equal(g.model_parallel_id, coord.model)
    expect.equal(g.is_first_stage, coord.pipe == 0)
    expect.equal(g.is_last_stage, coord.pipe == t:size("pipe") - 1)
    for _, group in pairs(g.groups) do
      local inside = false
      for _, other in ipairs(group) do inside = inside or other == rank end
      expect.equal(inside, true)
    end
    for stage = 0, t:size("pipe") - 1 do
      coord.pipe = stage
      expect.equal(g:stage_to_global(stage), t:rank(coord))
      for data = 0, t:size("data") - 1 do
        local there = {pipe = stage, data = data, model = coord.model}
        expect.equal(g:stage_to_global(stage, {data = data}), t:rank(there))
      end
    end
    expect.equal(tostring(t:grid(rank).created), tostring(t:grid(0).created)) -- equal on all ranks
  end
end

-- DeepSpeed's default topology uses any number of ranks completely.
for ranks = 1, 64 do
  local t = strata.topology(ranks)
  expect.equal(t.world_size, ranks)
  expect.equal(t:size("pipe") >= 1 and t:size("data") >= 1, true)
end

-- Partitions: the bounds cover all items in order.
local function check_bounds(bounds, items, parts)
  expect.equal(#bounds, parts + 1)
  expect.equal(bounds[1], 0)
  expect.equal(bounds[parts + 1], items)
  for i = 1, parts do expect.equal(bounds[i] <= bounds[i + 1], true) end
end

local function heaviest(weights, bounds)
  local most = 0
  for part = 1, #bounds - 1 do
    local sum = 0
    for i = bounds[part] + 1, bounds[part + 1] do sum = sum + weights[i] end
    most = math.max(most, sum)
  end
  return most
end

-- The smallest possible weight of the heaviest part, found by trying all cuts.
local function best_by_force(weights, parts, first)
  first = first or 1
  local sum, best = 0, math.huge
  if parts == 1 then
    for i = first, #weights do sum = sum + weights[i] end
    return sum
  end
  for last = first - 1, #weights do
    if last >= first then sum = sum + weights[last] end
    best = math.min(best, math.max(sum, best_by_force(weights, parts - 1, last + 1)))
  end
  return best
end

for items = 0, 12 do
  for parts = 1, 6 do
    local bounds = strata.partition.uniform(items, parts)
    check_bounds(bounds, items, parts)
  end
end

for _ = 1, 60 do
  local weights, parts = {}, math.random(4)
  for i = 1, parts + math.random(5) do weights[i] = math.random(0, 9) end
  local bounds = strata.partition.balanced(weights, parts)
  check_bounds(bounds, #weights, parts)
  expect.equal(heaviest(weights, bounds), best_by_force(weights, parts))
  for part = 1, parts do expect.equal(bounds[part] < bounds[part + 1], true) end -- none is empty
  local theirs = strata.partition.balanced(weights, parts, {compat = "deepspeed"})
  check_bounds(theirs, #weights, parts)
  expect.equal(heaviest(weights, theirs) >= heaviest(weights, bounds), true)
end

-- Programs.
local function each_size(f)
  for _, name in ipairs{"gpipe", "1f1b"} do
    for ranks = 1, 5 do
      for micro_batches = 1, 7, 2 do
        f(strata.schedule(name, {ranks = ranks, micro_batches = micro_batches}), name, ranks,
          micro_batches)
      end
    end
  end
end

-- Every stage runs every micro-batch once forward and once backward, and the program passes its check.
each_size(function(p, name, ranks, micro_batches)
  expect.equal(p:check(), true)
  expect.equal(#p.rows, ranks)
  for rank, row in ipairs(p.rows) do
    local seen = {}
    for _, action in ipairs(row) do
      if action ~= "" then
        expect.equal(seen[action], nil)
        seen[action] = true
      end
    end
    for m = 0, micro_batches - 1 do
      expect.equal(seen[(rank - 1) .. "F" .. m], true)
      expect.equal(seen[(rank - 1) .. "B" .. m], true)
    end
  end
end)

-- Both take (M + P - 1) forwards and backwards; 1f1b stores no more activations than necessary.
each_size(function(p, name, ranks, micro_batches)
  local s = p:simulate{F = 1, I = 1, W = 1}
  expect.equal(s.makespan, 3 * (micro_batches + ranks - 1))
  for _, busy in ipairs(s.busy) do expect.equal(busy, 3 * micro_batches) end
  expect.equal(math.abs(s.bubble - (ranks - 1) / (micro_batches + ranks - 1)) < 1e-12, true)
  for rank, peak in ipairs(s.peak_activations) do
    local needed = name == "gpipe" and micro_batches or math.min(ranks - rank + 1, micro_batches)
    expect.equal(peak, needed)
  end
end)

-- The number of buffers equals DeepSpeed's.
each_size(function(p, name, ranks, micro_batches)
  if name ~= "1f1b" then return end
  for rank, buffers in ipairs(p:buffers()) do
    expect.equal(buffers, math.max(2, math.min(ranks - rank + 1, micro_batches)))
  end
end)

-- A program survives conversion to text and back, also lowered; both have the same simulated time.
each_size(function(p, name, ranks, micro_batches)
  local again = strata.schedule.parse(p:csv(), {micro_batches = micro_batches})
  expect.equal(again.rows, p.rows)
  expect.equal(again.stage_ranks, p.stage_ranks)
  local lowered = p:lowered()
  expect.equal(lowered:check(), true)
  expect.equal(lowered:simulate().makespan, p:simulate().makespan)
  expect.equal(#lowered:csv() > #p:csv(), true)
  expect.equal(p:gantt() ~= "", true)
end)

-- A program is refused if any one of its actions is missing or occurs twice.
each_size(function(p, name, ranks, micro_batches)
  local rank = math.random(ranks)
  local lines = {}
  for i, row in ipairs(p.rows) do
    local cells = {}
    for _, action in ipairs(row) do cells[#cells + 1] = action end
    lines[i] = cells
  end
  local function text()
    local rows = {}
    for i, cells in ipairs(lines) do rows[i] = table.concat(cells, ",") end
    return table.concat(rows, "\n")
  end
  local options = {ranks = ranks, micro_batches = micro_batches}
  expect.equal(strata.schedule.parse(text(), options):check(), true)
  local place
  repeat place = math.random(#lines[rank]) until lines[rank][place] ~= ""
  local action = lines[rank][place]
  table.insert(lines[rank], place, action)
  expect.equal(strata.schedule.parse(text(), options):check(), nil)
  table.remove(lines[rank], place)
  table.remove(lines[rank], place)
  local ok, why = strata.schedule.parse(text(), options):check()
  expect.equal(ok, nil)
  expect.equal(#why > 0, true)
end)
