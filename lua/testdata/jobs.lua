-- strata.job, and the content of a job and its plan; overrides; errors.
local strata = require "strata"
local expect = require "expect"
local nn = strata.nn

local function job(more)
  local keys = {
    name = "net",
    input = {shape = {8}},
    layers = {nn.Linear{8, 16}, nn.ReLU{}, nn.Linear{16, 16}, nn.ReLU{}, nn.Linear{16, 4}},
    loss = nn.CrossEntropyLoss{},
    batch = {micro_batches = 4, micro_batch_size = 2},
    schedule = "1f1b",
    device = "cpu",
  }
  for name, value in pairs(more or {}) do keys[name] = value end
  return strata.job(keys)
end

-- The keys of a job, given and by default.
local j = job()
expect.equal(j.name, "net")
expect.equal(#j.layers, 5)
expect.equal(j.layers[1].type, "Linear")
expect.equal(j.layers[1].parameters, 8 * 16 + 16)
expect.equal(j.layers[2].parameters, 0)
expect.equal(j.loss.type, "CrossEntropyLoss")
expect.equal(j.batch.micro_batches, 4)
expect.equal(j.batch.micro_batch_size, 2)
expect.equal(j.seed, 1234)
expect.equal(job{seed = 7}.seed, 7)
expect.equal(job{steps = 3}.steps, 3)
expect.equal(tostring(j):find('job "net"', 1, true), 1)
expect.equal(tostring(j):find("Linear(8, 16", 1, true) ~= nil, true)
expect.error(function() return j.optimiser end, "optimiser", "optimizer")
expect.error(function() j.name = "other" end, "cannot be changed")
expect.error(function() j.layers.x.y = 1 end, "jobs.lua:")

-- Layers: lists in lists, repetition, cuts, functions.
local function count(layers) return #job{layers = layers, input = {shape = {4}}}.layers end
expect.equal(count{nn.Linear{4, 4}}, 1)
expect.equal(count{{nn.Linear{4, 4}}, {{nn.ReLU{}}, {{nn.Linear{4, 4}}}}}, 3)
expect.equal(count{strata.times(3, function() return {nn.Linear{4, 4}, nn.ReLU{}} end)}, 6)
expect.equal(count{strata.times(2, function() return strata.times(2, function()
  return nn.ReLU{}
end) end)}, 4)
expect.equal(count{nn.Sequential{nn.Linear{4, 4}, nn.ReLU{}}, nn.ReLU{}}, 2)
expect.equal(count{nn.ReLU{}, strata.cut(), nn.ReLU{}}, 2)
expect.equal(count{function(x) return x end, nn.ReLU{}}, 2)
local named = job{layers = {nn.Linear{8, 8, name = "first"}, function(x) return x end}}
expect.equal(named.layers[1].name, "first")
expect.equal(named.layers[2].type, "function")

local plan = j:plan{pipe = 2}
expect.error(function() return plan.bound end, "bound", "bounds")
expect.error(function() plan.bounds = {} end, "cannot be changed")

-- Overrides: members of parallel and batch by themselves, nested tables, methods, functions. The job stays unchanged.
expect.equal(j:plan{}.topology.world_size, 1)
expect.equal(#j:plan{pipe = 3}.stages, 3)
expect.equal(#j:plan{parallel = {pipe = 3}}.stages, 3)
expect.equal(#j:plan{parallel = strata.topology{pipe = 3}}.stages, 3)
expect.equal(j:plan{pipe = 2, partition = "uniform"}.bounds, {0, 3, 5})
expect.equal(j:plan{pipe = 2, partition = {0, 1, 5}}.bounds, {0, 1, 5})
expect.equal(j:plan{pipe = 2, partition = "type:linear"}.bounds[3], 5)
expect.equal(j:plan{pipe = 2, partition = function(layers, stages)
  expect.equal(#layers, 5)
  expect.equal(stages, 2)
  return {0, 4, 5}
end}.bounds, {0, 4, 5})
expect.equal(j:plan{micro_batches = 8}.program.micro_batches, 8)
expect.equal(j:plan{schedule = "gpipe", pipe = 2}.program.name, "gpipe")
expect.equal(j:plan{pipe = 2}.program.name, "1f1b")
expect.equal(j.batch.micro_batches, 4)

-- Marks in the list are cuts, unless the partition says otherwise.
local marked = job{layers = {nn.Linear{8, 8}, strata.cut(), nn.Linear{8, 8}, nn.Linear{8, 4}}}
expect.equal(marked:plan{pipe = 2}.bounds, {0, 1, 3})
expect.equal(marked:plan{pipe = 3, partition = "uniform"}.bounds, {0, 1, 2, 3})

-- Errors about overrides name the nearest key.
expect.error(function() j:plan{pip = 2} end, "jobs.lua:", "pip", "pipe")
expect.error(function() j:plan{pipe = "two"} end, "pipe")
expect.error(function() j:plan{pipe = 0} end, "pipe")
expect.error(function() j:plan{pipe = 1.5} end, "pipe")
expect.error(function() j:plan{pipe = 6} end, "layers")
expect.error(function() j:plan{partition = "unifrom", pipe = 2} end, "unifrom", "uniform")
expect.error(function() j:plan{partition = "type:nothing", pipe = 2} end, "nothing")
expect.error(function() j:plan{schedule = "2f2b"} end, "jobs.lua:", '"2f2b"')
expect.error(function() j:plan{schedule = "1f2b"} end, 'did you mean "1f1b"?')
expect.error(function() j:plan{schedule = "zbv"} end, "stages_per_rank must be 2, not 1")
expect.error(function() j:plan{micro_batches = 2 ^ 31 - 1} end, "too large")
expect.error(function() j:plan{micro_batches = 2 ^ 31} end, "the largest is 2147483647")
expect.error(function() j:plan{optimizer = {"sgd", momentun = 1}} end, "momentun", "momentum")

-- Errors in the declaration.
expect.error(function() strata.job(7) end, "a table: strata.job{", "the number 7")
expect.error(function() strata.job() end, "a table: strata.job{", "nothing")
expect.error(function() strata.job{} end, "no layers")
expect.error(function() job{optimiser = "sgd"} end, 'no key "optimiser"', "optimizer")
expect.error(function() job{loss = nn.MSELoss} end, "bare nn.MSELoss", "nn.MSELoss{}")
expect.error(function() job{steps = nn.ReLU{}} end, "steps", "a layer")
expect.error(function() job{layers = 7} end, "layers", "the number 7")
expect.error(function() job{lr_schedule = {"cosin"}} end, "cosin", "cosine")

-- The error for shapes that do not fit names both layers.
expect.error(function()
  job{layers = {nn.Linear{8, 16}, nn.ReLU{}, nn.Linear{15, 4}}}:plan{}
end, "layer 2", "Linear(15, 4", "16")
