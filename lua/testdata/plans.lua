-- The content of a plan: its layers, stages, batch and program, compared with the job.
local strata = require "strata"
local expect = require "expect"
local nn = strata.nn

-- What a plan tells. (Its laws are tested in engine/plan.)
do
  local layers = {nn.Linear{4, 8}, nn.ReLU{}, nn.Linear{8, 2, bias = false}}
  local plan = strata.job{
    input = {shape = {4}}, layers = layers, device = "cpu", partition = "parameters", schedule = "1f1b",
    batch = {micro_batches = 5, micro_batch_size = 3},
  }:plan{pipe = 2}
  local wide, output = {shape = {3, 8}, dtype = "float32"}, {shape = {3, 2}, dtype = "float32"}
  for i, expected in ipairs{{"Linear", 40, wide}, {"ReLU", 0, wide}, {"Linear", 16, output}} do
    local layer = plan.layers[i]
    expect.equal({layer.index, layer.path, layer.frozen}, {i - 1, tostring(i - 1), 0})
    expect.equal({layer.type, layer.parameters, layer.output[1]}, expected)
  end
  expect.equal({plan.parameters, plan.bounds}, {56, {0, 2, 3}})
  local first, last = unpack(plan.stages)
  expect.equal({first.stage, first.rank, first.begin, first["end"], first.parameters}, {0, 0, 0, 2, 40})
  expect.equal({last.stage, last.rank, last.begin, last["end"], last.parameters}, {1, 1, 2, 3, 16})
  expect.equal({first.input[1].shape, first.output, last.input, last.output}, {{3, 4}, {wide}, {wide}, {output}})
  expect.equal({plan.parallel.pipe, plan.topology:size("pipe"), plan.topology.world_size}, {2, 2, 2})
  expect.equal(plan.batch, {size = 15, micro_batches = 5, micro_batch_size = 3})
  expect.equal(plan.program:csv(), strata.schedule("1f1b", {ranks = 2, micro_batches = 5}):csv())
  expect.equal(select(2, tostring(plan):gsub("\n", "\n")), #layers + 2 + 6)
end

-- A schedule may be a function: it gets the sizes and returns the program as text.
local job = strata.job{
  input = {shape = {4}}, layers = strata.times(4, function() return nn.Linear{4, 4} end),
  batch = {micro_batches = 3, micro_batch_size = 2}, device = "cpu",
}
local asked
local function mine(ranks, stages_per_rank, micro_batches)
  asked = {ranks, stages_per_rank, micro_batches}
  return strata.schedule("gpipe", {ranks = ranks, micro_batches = micro_batches}):csv()
end
local by_function = job:plan{pipe = 2, schedule = mine}.program
expect.equal(asked, {2, 1, 3})
expect.equal(by_function.rows, strata.schedule("gpipe", {ranks = 2, micro_batches = 3}).rows)
local function refuse(f, ...)
  return {function() return job:plan{pipe = 2, schedule = f}.program:lowered() end, "plans.lua:", ...}
end
expect.errors{
  refuse(function() return 7 end, "schedule", "the number 7"),
  refuse(function() end, "schedule", "nothing"),
  refuse(function() error("not today") end, "not today"),
  refuse(function() return "0F0,hello\n1F0" end, "hello"),
  refuse(function(ranks) return ranks.x end, "index"),
}

-- The program of a plan knows the plan's tied stages.
local shared = strata.job{
  input = {shape = {4}}, batch = {micro_batches = 2, micro_batch_size = 2}, device = "cpu",
  layers = {strata.tied{"w", nn.Linear{4, 4}}, nn.Linear{4, 4}, strata.tied{"w", nn.Linear{4, 4}}},
}
local lowered = shared:plan{pipe = 3}.program:lowered()
expect.equal(lowered:csv():find("0REDUCE_TIED", 1, true) ~= nil, true)
expect.equal(lowered:csv():find("2REDUCE_TIED", 1, true) ~= nil, true)
expect.equal(lowered:csv():find("1REDUCE_TIED", 1, true), nil)
expect.equal(lowered:check(), true)

-- A plan is not changed by later plans of the job, and the same call gives the same plan.
local first = job:plan{pipe = 2}
local before = tostring(first)
job:plan{pipe = 4, micro_batches = 7, partition = "uniform"}
expect.equal(tostring(first), before)
expect.equal(tostring(job:plan{pipe = 2}), before)
first.layers[1].parameters = 0
expect.equal(first.layers[1].parameters, 20)

-- Jobs that cannot be planned.
expect.errors{
  {function() job:plan{pipe = 5} end, "plans.lua:", "5 stages", "4"},
  {function() job:plan{pipe = 2 ^ 40} end, "pipe"},
  {function() job:plan{parallel = strata.topology({"expert"}, {2})} end, "expert"},
  {function() job:plan{micro_batch_size = 0} end, "micro_batch_size", "0"},
  {function() job:plan{input = {shape = {5}}} end, "Linear(4, 4", "5"},
  {function() job:plan{input = {shape = {4}, dtype = "int64"}} end, "Linear(4, 4", "int64"},
  {function() job:plan("pipe") end, "a table of job keys", '"pipe"'},
  {function() job.plan() end, "expected a job", "nothing"},
  {function() job.plan({pipe = 2}) end, "expected a job"},
  {function() return first.layer end, '"layer"', "layers"},
  {function() return first.stages[1].rank.x end, "plans.lua:"},
}
local no_batch = strata.job{input = {shape = {4}}, layers = {nn.Linear{4, 4}}, device = "cpu"}
expect.error(function() no_batch:plan{} end, "plans.lua:", "batch needs two")
expect.equal(no_batch:plan{micro_batches = 1, micro_batch_size = 1}.parameters, 20)
