-- strata.skip and join, strata.tied, and split layers: what each constructor makes, and every wrong use
-- of it. (Their results are tested in lua/engine.)
local strata = require "strata"
local nn = strata.nn
local expect = require "expect"

local function job(layers, more)
  local keys = {
    name = "net", device = "cpu", layers = layers, loss = nn.MSELoss{}, input = {shape = {4}},
    batch = {micro_batches = 2, micro_batch_size = 3}, steps = 1,
  }
  for name, value in pairs(more or {}) do keys[name] = value end
  return strata.job(keys)
end
local function wide() return nn.Linear{4, 4} end

-- Skips change the shapes that stages receive.
local plan = job({strata.skip{"a"}, wide(), strata.skip{"b"}, wide(), strata.join{"b", how = "cat"},
                  nn.Linear{8, 4}, strata.join{"a"}}):plan{partition = {0, 2, 4, 7}, pipe = 3}
local received = {}
for i, stage in ipairs(plan.stages) do received[i] = #stage.input end
expect.equal(received, {1, 2, 3})
expect.equal(plan.layers[5].output[1].shape, {3, 8})
expect.equal(plan.layers[1].parameters, 0)

for _, case in ipairs {
  {{strata.skip{"a"}, wide()}, 'strata.join{"a"}'},
  {{wide(), strata.join{"a"}}, 'strata.skip{"a"}'},
  {{strata.skip{"low"}, wide(), strata.join{"lwo"}}, 'did you mean "low"?'},
  {{strata.skip{"a"}, strata.skip{"a"}, strata.join{"a"}}, "a key is used once"},
  {{strata.skip{"a"}, strata.join{"a"}, strata.join{"a"}}, "for two joins write two skips"},
  {{nn.Residual{strata.skip{"a"}}}, "not inside a layer"},
  {{nn.Sequential{wide(), nn.Residual{strata.join{"a"}}}, wide()}, "not inside a layer"},
} do
  expect.error(function() job(case[1]) end, case[2])
end
expect.error(function()
  job{strata.skip{"a"}, nn.Linear{4, 5}, strata.join{"a"}}:plan{}
end, "adds the kept float32 (3, 4)", "float32 (3, 5)")
expect.error(function()
  job{strata.skip{"a"}, nn.Linear{4, 5}, strata.join{"a", how = "cat", dim = 0}}:plan{}
end, "in dim 0")
expect.error(function() strata.join{"a", how = "cat", dims = 2} end, 'did you mean "dim"?')
expect.error(function() strata.skip{7} end, "key")
expect.error(function() strata.skip{"a", "b"} end, "skip")

-- A list of layers may come from functions and from lists within lists.
local function block(key, body) return {strata.skip{key}, body, strata.join{key}} end
local nested = job(strata.times(3, function(i) return block("block " .. i, {wide(), nn.ReLU{}}) end))
expect.equal(#nested:plan{}.layers, 12)
