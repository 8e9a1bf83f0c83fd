-- Programs of every schedule, as scripts see them: their actions, their check, their diagrams, and texts
-- that are not programs.
local strata = require "strata"
local expect = require "expect"
local schedule = strata.schedule

-- The stages_per_rank that each schedule takes: one number, or any.
local SCHEDULES = {
  gpipe = 1, ["1f1b"] = 1, zb_h1 = 1, zb_h2 = 1, zbv = 2, v_half = 2, v_min = 2, dualpipev = 2,
  interleaved_1f1b = "any", looped_bfs = "any", interleaved_zb = "any", inference = "any",
}

local function each(f)
  for name, per_rank in pairs(SCHEDULES) do
    for ranks = 1, 4 do
      for _, stages in ipairs(per_rank == "any" and {1, 2, 3} or {per_rank}) do
        for _, micro_batches in ipairs{2 * ranks, 2 * ranks + 3} do
          f(schedule(name, {ranks = ranks, stages_per_rank = stages, micro_batches = micro_batches}),
            name, ranks, stages, micro_batches)
        end
      end
    end
  end
end

-- The number of times that each action occurs; a pair of a forward and a backward counts as two.
local function count(rows)
  local seen = {}
  for _, row in ipairs(rows) do
    for _, cell in ipairs(row) do
      for stage, kind, micro_batch in cell:gmatch("(%d+)([FIWB])(%d+)") do
        local key = stage .. kind .. micro_batch
        seen[key] = (seen[key] or 0) + 1
      end
    end
  end
  return seen
end

-- The sizes are the requested ones; each stage runs each micro-batch once forward, and once backward, in
-- one action or in its two halves.
each(function(p, name, ranks, stages, micro_batches)
  expect.equal(p.name, name)
  expect.equal(p.ranks, ranks)
  expect.equal(p.stages, ranks * stages)
  expect.equal(p.micro_batches, micro_batches)
  expect.equal(#p.rows, ranks)
  expect.equal(#p.stage_ranks, p.stages)
  local seen, actions = count(p.rows), 0
  for stage = 0, p.stages - 1 do
    for m = 0, micro_batches - 1 do
      expect.equal(seen[stage .. "F" .. m], 1)
      local whole, half = seen[stage .. "B" .. m], seen[stage .. "I" .. m]
      expect.equal(seen[stage .. "W" .. m], half)
      expect.equal((whole or 0) + (half or 0), name == "inference" and 0 or 1)
      actions = actions + 1 + (whole or 0) + 2 * (half or 0)
    end
  end
  local all = 0
  for _, n in pairs(seen) do all = all + n end
  expect.equal(all, actions)
end)

-- They pass their check as they are and lowered. Lowered, each message has both ends, there is one
-- optimizer step for each stage of a training, and the time is the same.
each(function(p, name)
  expect.equal(p:check(), true)
  local lowered = p:lowered()
  expect.equal(lowered:check(), true)
  local text = lowered:csv()
  for _, kind in ipairs{"F", "B"} do
    local _, sends = text:gsub("SEND_" .. kind, "")
    local _, receives = text:gsub("RECV_" .. kind, "")
    expect.equal(sends, receives)
  end
  local _, steps = text:gsub("STEP", "")
  expect.equal(steps, name == "inference" and 0 or p.stages)
  expect.equal(lowered:simulate().makespan, p:simulate().makespan)
  expect.equal(lowered:simulate().bubble, p:simulate().bubble)
end)

-- Conversion to CSV and back gives the same program with the same results.
each(function(p, name, ranks)
  local again = schedule.parse(p:csv(), {name = name, stage_ranks = p.stage_ranks, micro_batches = p.micro_batches})
  expect.equal(again.rows, p.rows)
  expect.equal(again.stage_ranks, p.stage_ranks)
  expect.equal(again:csv(), p:csv())
  expect.equal(again:buffers(), p:buffers())
  expect.equal(again:simulate(), p:simulate())
  expect.equal(again:gantt(), p:gantt())
  expect.equal(tostring(again), tostring(p))
  expect.equal(select(2, p:csv():gsub("\n", "")), ranks)
end)

-- The simulator: times scale with costs; a rank is busy for the sum of its actions; the step is at least
-- as long as the busiest rank needs, and as one micro-batch needs to pass all stages.
each(function(p, name, ranks, stages, micro_batches)
  local costs = {F = math.random(5), I = math.random(5), W = math.random(5)}
  local s = p:simulate(costs)
  local work = stages * micro_batches *
    (name == "inference" and costs.F or costs.F + costs.I + costs.W)
  local busiest = 0
  for _, busy in ipairs(s.busy) do
    expect.equal(math.abs(busy - work) < 1e-9, true)
    busiest = math.max(busiest, busy)
  end
  expect.equal(s.makespan >= busiest - 1e-9, true)
  expect.equal(s.makespan >= p.stages * costs.F, true)
  expect.equal(math.abs(s.bubble - (1 - work * ranks / (ranks * s.makespan))) < 1e-9, true)
  local doubled = p:simulate{F = 2 * costs.F, I = 2 * costs.I, W = 2 * costs.W}
  expect.equal(doubled.makespan, 2 * s.makespan)
  expect.equal(doubled.peak_activations, s.peak_activations)
  costs.comm = 1
  expect.equal(p:simulate(costs).makespan >= s.makespan, true)
end)

-- Equal costs for each stage are the same as one cost for all; a slow stage makes the step longer.
each(function(p)
  local ones, slow = {}, {}
  for i = 1, p.stages do ones[i], slow[i] = 1, i == p.stages and 3 or 1 end
  expect.equal(p:simulate{F = ones, I = ones, W = ones}, p:simulate{})
  expect.equal(p:simulate{F = slow}.makespan > p:simulate{}.makespan, true)
end)

-- The makespans that the schedules promise for P ranks and M micro-batches with F = I = W = 1.
for ranks = 2, 5 do
  local m = 3 * ranks
  local function makespan(name, stages)
    return schedule(name, {ranks = ranks, stages_per_rank = stages or 1, micro_batches = m}):simulate().makespan
  end
  local classic = makespan "1f1b"
  expect.equal(classic, 3 * (m + ranks - 1))
  expect.equal(makespan "gpipe", classic)
  expect.equal(makespan "zb_h1", 3 * m + ranks - 1)
  expect.equal(makespan("interleaved_1f1b", 2) < 2 * classic, true)
  expect.equal(makespan("zbv", 2), 6 * m + ranks - 1)
  expect.equal(makespan("inference", 1), m + ranks - 1)
end

-- The diagram has a line for each rank, and the requested width.
local p = schedule("1f1b", {ranks = 4, micro_batches = 8})
for rank = 0, 3 do expect.equal(p:gantt():find("rank " .. rank, 1, true) ~= nil, true) end
expect.equal(p:gantt{color = true}:find("\27[", 1, true) ~= nil, true)
expect.equal(p:gantt{color = false}:find("\27", 1, true), nil)
expect.equal(#p:gantt{width = 30} < #p:gantt{width = 200}, true)

-- A program written by hand: spaces and empty cells are idle time, rows are ranks.
local mine = schedule.parse("0F0, 0F1, , , 0B0, 0B1\n , 1F0, 1B0, 1F1, 1B1,\n", {name = "mine"})
expect.equal(mine.name, "mine")
expect.equal(mine.ranks, 2)
expect.equal(mine.micro_batches, 2)
expect.equal(mine:check(), true)
expect.equal(mine.rows[1][3], "")
expect.equal(schedule.parse("0F0,0B0\r\n1F0,1B0\r\n").ranks, 2)
-- Two stages on one rank, and stages on the ranks given by the rows.
local both = schedule.parse("0F0,1F0,1B0,0B0")
expect.equal(both.stage_ranks, {0, 0})
expect.equal(both:check(), true)
expect.equal(schedule.parse("1F0,1B0\n0F0,0B0").stage_ranks, {1, 0})

-- A text that parses to a wrong program: the error says what is missing, with the rank and the action.
local function refused(csv, ...)
  local ok, why = schedule.parse(csv):check()
  if ok then error("expected a wrong program: " .. csv, 2) end
  for _, text in ipairs{...} do
    if not why:find(text, 1, true) then error('expected "' .. text .. '" in: ' .. why, 2) end
  end
end
refused("0F0,0F1,0B0", "0B1")
refused("0B0,0F0", "0B0")
refused("0F0,0F0,0B0", "0F0")
refused("0F0,0I0", "W")
refused("0F0,0W0,0I0", "0W0")
refused("0F0,0B0,0I0,0W0", "0")
refused("0F0,0B0\n1B0,1F0", "1B0")
refused("1F0,1B0,0F0,0B0", "1F0")
refused("0F0,0B0,0F2,0B2", "1")

-- Texts that are not programs.
expect.errors{
  {function() schedule.parse("0F0,hello") end, "programs.lua:", "hello"},
  {function() schedule.parse("F0") end, "F0"},
  {function() schedule.parse("0F") end, "0F"},
  {function() schedule.parse("0X0") end, "0X0"},
  {function() schedule.parse("-1F0") end, "-1F0"},
  {function() schedule.parse("0F99999999999999999999") end, "programs.lua:"},
  {function() schedule.parse("99999999999F0") end, "programs.lua:"},
  {function() schedule.parse("(0F0;0B1)OVERLAP") end, "programs.lua:"},
  {function() schedule.parse("(0F0;0B1)OVERLAP_F_X") end, "programs.lua:"},
  {function() schedule.parse("0F0\0") end, "programs.lua:"},
  {function() schedule.parse("0F0,0B0", {ranks = 0.5}) end, "ranks", "0.5"},
  {function() schedule.parse("0F0,0B0", {stage_ranks = {3}}) end, "programs.lua:"},
  {function() schedule.parse("0F0,0B0", {stage_ranks = "0"}) end, "stage_ranks"},
  {function() schedule.parse("0F0,0B0", {nam = "x"}) end, '"nam"', "name"},
  {function() schedule.parse("0F0,0B0", {micro_batches = -1}) end, "micro_batches"},
  {function() schedule.parse() end, "a program as CSV text", "nothing"},
  {function() schedule.parse({}) end, "a program as CSV text", "a list of 0"},
  {function() schedule("zb") end, '"zb"', 'did you mean "zb_h1"?'},
  {function() schedule("zbv", {ranks = 2}) end, "two stages per rank", "must be 2, not 1"},
  {function() schedule("1f1b", {stages_per_rank = 2}) end, "one stage per rank", "must be 1, not 2"},
  {function() schedule("dualpipev", {ranks = 3, stages_per_rank = 2, micro_batches = 5}) end, "2 micro-batches per rank"},
  {function() schedule("1f1b", {ranks = 1e9}) end, "stages are too many"},
  {function() schedule("1f1b", {micro_batches = 1e9}) end, "too large"},
  {function() schedule("1f1b", {ranks = 1e5, micro_batches = 1e6}) end, "stages are too many"},
  {function() schedule("1f1b", {ranks = 3e4, micro_batches = 1e6}) end, "too large"},
  {function() schedule.parse("0F0,0B0", {micro_batches = 2e9}) end, "2,000,000,000 micro-batches is too large"},
  {function() schedule.parse("0F0,0B2000000000") end, "too large"},
  {function() schedule("1f1b", {micro_batches = 1.5}) end, "micro_batches", "1.5"},
  {function() schedule("1f1b", {micro_batches = "many"}) end, "micro_batches", '"many"'},
  {function() schedule("1f1b", "4") end, "ranks", '"4"'},
  {function() schedule(7) end, "the name of a schedule", "the number 7"},
  {function() p:simulate{F = {1, 2}} end, "F", "4"},
  {function() p:simulate{F = "slow"} end, "F", '"slow"'},
  {function() p:simulate{F = -1} end, "F"},
  {function() p:simulate{comm = 0 / 0} end, "comm"},
  {function() p:simulate{f = 1} end, '"f"', '"F"'},
  {function() p:simulate(3) end, "programs.lua:"},
  {function() p:gantt{width = -1} end, "width"},
  {function() p:gantt{width = 1e6} end, "width"},
  {function() p:gantt{colour = true} end, '"colour"', "color"},
  {function() return p.rank end, '"rank"', "ranks"},
  {function() p.name = "x" end, "cannot be changed"},
}
