-- Programs as scripts see them. (Their laws are tested in engine/schedule.)
local strata = require "strata"
local expect = require "expect"

local p = strata.schedule("1f1b", {ranks = 2, micro_batches = 2})
expect.equal(p.name, "1f1b")
expect.equal(p.ranks, 2)
expect.equal(p.stages, 2)
expect.equal(p.micro_batches, 2)
expect.equal(p.stage_ranks, {0, 1})
expect.equal(p:check(), true)
expect.equal(p:buffers(), {2, 2})
expect.equal(p.rows[2][2], "1F0")

local csv = p:csv()
expect.equal(#csv:gsub("[^\n]", ""), 2)
local again = strata.schedule.parse(csv, {name = "mine"})
expect.equal(again.name, "mine")
expect.equal(again:csv(), csv)
expect.equal(again.micro_batches, 2)

local lowered = p:lowered()
expect.equal(lowered:csv():find("0SEND_F0", 1, true) ~= nil, true)
expect.equal(lowered:csv():find("1STEP", 1, true) ~= nil, true)
expect.equal(lowered:check(), true)

-- Tied stages have one more reduction, which the check requires.
expect.equal(lowered:csv():find("REDUCE_TIED", 1, true), nil)
local tied = p:lowered{tied_stages = {0}}:csv()
expect.equal(tied:find("0REDUCE_TIED,0REDUCE_GRAD", 1, true) ~= nil, true)
expect.equal(tied:find("1REDUCE_TIED", 1, true), nil)

-- With 2 ranks, 2 micro-batches, F = 1 and B = 2, the makespan is (M + P - 1) * 3.
local s = p:simulate()
expect.equal(s.makespan, 9)
expect.equal(s.busy, {6, 6})
expect.equal(math.abs(s.bubble - 1 / 3) < 1e-12, true)
expect.equal(s.peak_activations, {2, 1})
expect.equal(p:simulate{F = 2, I = 1, W = 1}.makespan, 12)
expect.equal(p:simulate{F = {1, 1}, B = 4}.makespan, 15)
expect.equal(p:simulate{comm = 1}.makespan > 9, true)
expect.equal(p:gantt():find("rank 0") ~= nil, true)
expect.equal(#p:gantt{width = 30} < #p:gantt{width = 200}, true)
expect.equal(p:gantt{color = true}:find("\27[", 1, true) ~= nil, true)
expect.equal(p:gantt{color = false}:find("\27", 1, true), nil)
expect.equal(tostring(p):find("rank 1") ~= nil, true)
expect.equal(tostring(p):find("1f1b", 1, true) ~= nil, true)

expect.equal(tostring(p):match("^[^\n]*"), "program 1f1b, 2 ranks, 2 stages, 2 micro-batches")
expect.equal(tostring(strata.schedule("gpipe")):match("^[^\n]*"), "program gpipe, 1 rank, 1 stage, 1 micro-batch")

local wrong = strata.schedule.parse("0F0,0B0\n1F0")
local ok, why = wrong:check()
expect.equal(ok, nil)
expect.equal(type(why), "string")
expect.equal(tostring(wrong):find("0F0,0B0", 1, true) ~= nil, true)

expect.equal(strata.schedule("inference", {ranks = 3, micro_batches = 4}):check(), true)
expect.equal(strata.schedule("gpipe", {ranks = 3, micro_batches = 4}):check(), true)

local auto = strata.schedule("auto", {ranks = 2, stages_per_rank = 2, micro_batches = 6, W = 2, memory = 4})
expect.equal(auto:check(), true)
expect.equal(math.max(unpack(auto:simulate{}.peak_activations)) <= 4, true)
expect.equal(strata.schedule("zbv", {ranks = 4, stages_per_rank = 2, micro_batches = 8}):simulate{}.wait[1], 0)

-- parse takes the options of strata.schedule and checks the text against them.
for _, name in ipairs{"1f1b", "interleaved_1f1b", "zbv"} do
  local sizes = {ranks = 2, stages_per_rank = name == "1f1b" and 1 or 2, micro_batches = 4}
  local text = strata.schedule(name, sizes):csv()
  expect.equal(strata.schedule.parse(text, sizes):csv(), text)
  expect.error(function() strata.schedule.parse(text, {stages_per_rank = 3}) end,
    "2 ranks with stages_per_rank = 3 have 6 stages; the program has " .. 2 * sizes.stages_per_rank)
end

-- A program written by hand: spaces and empty cells are idle time, rows are ranks.
local parse = strata.schedule.parse
local mine = parse("0F0, 0F1, , , 0B0, 0B1\n , 1F0, 1B0, 1F1, 1B1,\n", {name = "mine"})
expect.equal({mine.name, mine.ranks, mine.micro_batches, mine:check(), mine.rows[1][3]}, {"mine", 2, 2, true, ""})
expect.equal(parse("0F0,0B0\r\n1F0,1B0\r\n").ranks, 2)
-- Two stages on one rank, and stages on the ranks given by the rows.
expect.equal(parse("0F0,1F0,1B0,0B0").stage_ranks, {0, 0})
expect.equal(parse("0F0,1F0,1B0,0B0"):check(), true)
expect.equal(parse("1F0,1B0\n0F0,0B0").stage_ranks, {1, 0})

expect.errors{
  {function() strata.schedule() end, "the name of a schedule", "nothing"},
  {function() strata.schedule(7) end, "the name of a schedule", "the number 7"},
  {function() strata.schedule("1f1", {ranks = 2}) end, "schedule.lua:", 'did you mean "1f1b"?'},
  {function() strata.schedule("1f1b", "4") end, "ranks", '"4"'},
  {function() strata.schedule("1f1b", {rank = 2}) end, '"rank"', "ranks"},
  {function() strata.schedule("1f1b", {ranks = 0}) end, "ranks"},
  {function() strata.schedule("1f1b", {ranks = 1e12}) end, "ranks"},
  {function() strata.schedule("1f1b", {micro_batches = 1.5}) end, "micro_batches", "1.5"},
  {function() strata.schedule("1f1b", {micro_batches = "many"}) end, "micro_batches", '"many"'},
  {function() strata.schedule("1f1b", {micro_batches = 1e9}) end, "too large"},
  {function() strata.schedule("1f1b", {ranks = 1e5, micro_batches = 1e6}) end, "stages are too many"},
  {function() strata.schedule("zbv", {ranks = 4, micro_batches = 8}) end, "two stages per rank", "stages_per_rank must be 2"},
  {function() strata.schedule("auto", {ranks = 2, stages_per_rank = 3, memory = 2}) end, "it needs 3"},
  {function() strata.schedule("auto", {F = -1}) end, "F"},
  {function() parse() end, "a program as CSV text", "nothing"},
  {function() parse(7) end, "a program as CSV text", "the number 7"},
  {function() parse("0F0,hello") end, "schedule.lua:", "hello"},
  {function() parse("0F0\0") end, "schedule.lua:"},
  {function() parse("0F0,0B2000000000") end, "too large"},
  {function() parse("0F0", {ranks = -1}) end, "ranks"},
  {function() parse("0F0,0B0", {ranks = 0.5}) end, "ranks", "0.5"},
  {function() parse("0F0,0B0", {micro_batches = -1}) end, "micro_batches"},
  {function() parse("0F0,0B0", {micro_batches = 2e9}) end, "2,000,000,000 micro-batches is too large"},
  {function() parse("0F0,0B0", {stage_ranks = {3}}) end, "schedule.lua:"},
  {function() parse("0F0,0B0", {stage_ranks = "0"}) end, "stage_ranks"},
  {function() parse("0F0,1F0,2F0\n3F0", {stages_per_rank = 2}) end, "have 4 stages; rank 0 of the program has 3"},
  {function() parse("0F0", {stages_per_rank = 0}) end, "stages_per_rank"},
  {function() parse("0F0", {stage_per_rank = 1}) end, '"stage_per_rank"', "stages_per_rank"},
  {function() parse("0F0,0B0", {nam = "x"}) end, '"nam"', "name"},
  {function() p:lowered{tied_stages = {2}} end, "stage 2", "has 2"},
  {function() p:lowered{tied_stage = {0}} end, "tied_stages"},
  {function() p:simulate{F = -1} end, "F"},
  {function() p:simulate{F = "slow"} end, "F", '"slow"'},
  {function() p:simulate{F = {1, 2, 3}} end, "schedule.lua:"},
  {function() p:simulate{comm = 0 / 0} end, "comm"},
  {function() p:simulate{f = 1} end, '"f"', '"F"'},
  {function() p:simulate(3) end, "schedule.lua:"},
  {function() p:gantt{width = "wide"} end, "width"},
  {function() p:gantt{width = 1e6} end, "width"},
  {function() p:gantt{colour = true} end, '"colour"', "color"},
  {function() return p.rank end, '"rank"', "ranks"},
  {function() p.name = "x" end, "cannot be changed"},
}
