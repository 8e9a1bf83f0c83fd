-- The content of a plan: its layers, stages, batch and program, compared with the job.
local strata = require "strata"
local expect = require "expect"
local nn = strata.nn

-- A random network of linear layers with other layers in between, and its sizes.
local function network()
  local layers, sizes, size = {}, {}, math.random(8)
  local input = size
  for i = 1, math.random(2, 10) do
    if math.random(3) == 1 then
      layers[i] = nn.ReLU{}
    else
      local out = math.random(8)
      layers[i] = nn.Linear{size, out, bias = math.random(2) == 1}
      size = out
    end
    sizes[i] = size
  end
  return layers, sizes, input
end

for _ = 1, 60 do
  local layers, sizes, input = network()
  local rows, m = math.random(4), math.random(6)
  local job = strata.job{
    input = {shape = {input}}, layers = layers, device = "cpu", partition = "parameters", schedule = "1f1b",
    batch = {micro_batches = m, micro_batch_size = rows},
  }
  local pipe = math.random(#layers)
  local plan = job:plan{pipe = pipe}

  -- Each layer has its index, its number of parameters, and its output shape for a full micro-batch.
  expect.equal(#plan.layers, #layers)
  local total = 0
  for i, layer in ipairs(plan.layers) do
    expect.equal(layer.index, i - 1)
    expect.equal(layer.path, tostring(i - 1))
    expect.equal(layer.type, layers[i].type)
    expect.equal(layer.parameters, layers[i].parameters)
    expect.equal(layer.frozen, 0)
    expect.equal(#layer.output, 1)
    expect.equal(layer.output[1], {shape = {rows, sizes[i]}, dtype = "float32"})
    total = total + layer.parameters
  end
  expect.equal(plan.parameters, total)

  -- The input of each stage is the output of the one before; together the stages have all layers.
  expect.equal(#plan.stages, pipe)
  expect.equal(plan.bounds[1], 0)
  expect.equal(plan.bounds[#plan.bounds], #layers)
  local sum = 0
  for s, stage in ipairs(plan.stages) do
    expect.equal(stage.stage, s - 1)
    expect.equal(stage.begin, plan.bounds[s])
    expect.equal(stage["end"], plan.bounds[s + 1])
    expect.equal(stage.output, plan.layers[stage["end"]].output)
    if s == 1 then
      expect.equal(stage.input[1].shape, {rows, input})
    else
      expect.equal(stage.input, plan.stages[s - 1].output)
    end
    sum = sum + stage.parameters
  end
  expect.equal(sum, total)

  -- The grid and the batch.
  expect.equal(plan.parallel.pipe, pipe)
  expect.equal(plan.topology:size("pipe"), pipe)
  expect.equal(plan.topology.world_size, pipe)
  expect.equal(plan.batch, {size = rows * m, micro_batches = m, micro_batch_size = rows})

  -- The program is the one that the schedule of this name makes for these sizes.
  for _, name in ipairs{"1f1b", "gpipe", "zb_h1", "zb_h2"} do
    local program = job:plan{pipe = pipe, schedule = name}.program
    local wanted = strata.schedule(name, {ranks = pipe, micro_batches = m})
    expect.equal(program.name, name)
    expect.equal(program:csv(), wanted:csv())
    expect.equal(program:check(), true)
  end

  -- The printed plan has a line for each layer and each stage.
  local text = tostring(plan)
  for _, layer in ipairs(layers) do expect.equal(text:find(layer.type, 1, true) ~= nil, true) end
  expect.equal(select(2, text:gsub("\n", "\n")), #layers + pipe + 6)
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
