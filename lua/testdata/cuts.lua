-- Cuts by functions, and lists that are not lists of layers. (The methods of partition are tested in engine/plan/cut,
-- nested lists in engine/job.)
local strata = require "strata"
local expect = require "expect"
local nn = strata.nn

local function job(layers, more)
  local keys = {layers = layers, batch = {micro_batches = 1, micro_batch_size = 1}, device = "cpu"}
  for name, value in pairs(more or {}) do keys[name] = value end
  return strata.job(keys)
end

local types = job{nn.Linear{4, 4}, nn.ReLU{}, nn.Linear{4, 4}, nn.Tanh{}, nn.Linear{4, 4}, nn.ReLU{}, nn.Linear{4, 4}}

-- A function gets the layers and the number of stages; its cuts are checked like all others.
local seen
local function cut_by(f) return types:plan{pipe = 2, partition = f}.bounds end
expect.equal(cut_by(function(layers, stages)
  seen = {#layers, stages, layers[1].type, layers[1].parameters, layers[2].index}
  return {0, 3, #layers}
end), {0, 3, 7})
expect.equal(seen, {7, 2, "Linear", 20, 1})
expect.errors{
  {function() cut_by(function() end) end, "cuts.lua:", "partition", "no list"},
  {function() cut_by(function() return "uniform" end) end, "partition", '"uniform"'},
  {function() cut_by(function() return {0, 7} end) end, "cuts.lua:"},
  {function() cut_by(function() return {0, 2, 4, 7} end) end, "cuts.lua:"},
  {function() cut_by(function() return {0, 7, 7} end) end, "cuts.lua:"},
  {function() cut_by(function() return {0, 8, 7} end) end, "cuts.lua:", "8"},
  {function() cut_by(function() return {1, 3, 7} end) end, "cuts.lua:"},
  {function() cut_by(function() return {0, 3, 6} end) end, "cuts.lua:", "7"},
  {function() cut_by(function() return {0, 2.5, 7} end) end, "cuts.lua:", "2.5"},
  {function() cut_by(function() return {0, "3", 7} end) end, "cuts.lua:"},
  {function() cut_by(function() return {0, -3, 7} end) end, "cuts.lua:", "-3"},
  {function() cut_by(function(layers) return layers.x.y end) end, "cuts.lua:", "index"},
  {function() cut_by(function() error("no cut today") end) end, "no cut today"},
  {function() types:plan{pipe = 2, partition = {0, 7}} end, "cuts.lua:"},
  {function() types:plan{pipe = 2, partition = {}} end, "cuts.lua:"},
  {function() types:plan{pipe = 2, partition = "type:"} end, "cuts.lua:"},
  {function() types:plan{pipe = 2, partition = "type:[" } end, "cuts.lua:", "["},
  {function() types:plan{pipe = 2, partition = "type:Conv"} end, "Conv"},
  {function() types:plan{pipe = 2, partition = "paramters"} end, '"paramters"', "parameters"},
  {function() types:plan{pipe = 8} end, "8 stages", "7"},
}

-- Values that are not lists of layers.
local function refuse(layers, ...) return {function() job(layers) end, "cuts.lua:", ...} end
expect.errors{
  refuse({}, "layers"), refuse({{}, {{}}}, "layers"), refuse({7}, "layers[1]", "the number 7"),
  refuse({nn.ReLU{}, "ReLU"}, "layers[2]", '"ReLU"'), refuse({nn.ReLU{}, {nn.ReLU}}, "layers[2][1]", "bare nn.ReLU"),
  refuse({nn.ReLU{}, {{true}}}, "layers[2][1][1]", "true"), refuse({nn.ReLU{}, x = nn.ReLU{}}, '"x"'),
  refuse({nn.MSELoss{}}, "loss"), refuse({strata.topology(2)}, "a topology"), refuse({[2] = nn.ReLU{}}, "layers[1]"),
  refuse({strata.cut()}, "layers"), refuse({coroutine.create(print)}, "layers[1]", "thread"),
  refuse({nn.ReLU{name = "same"}, nn.Tanh{name = "same"}}, "same"),
}
local endless = {}
endless[1] = endless
expect.error(function() job(endless) end, "cuts.lua:", "nested")

-- times counts from 0, and returns the values of its function unchanged.
for n = 0, 20 do
  local list = strata.times(n, function(i) return i end)
  expect.equal(#list, n)
  for i = 1, n do expect.equal(list[i], i - 1) end
end
expect.errors{
  {function() strata.times() end, "how many times", "nothing"},
  {function() strata.times("3", print) end, "how many times", '"3"'},
  {function() strata.times(1.5, print) end, "how many times", "1.5"},
  {function() strata.times(100001, print) end, "up to 100000 times"},
  {function() strata.times(-1, print) end, "not -1"},
  {function() strata.times(1, 7) end, "a function", "the number 7"},
  {function() strata.times(3, function(i) if i == 1 then return nil end return i end) end, "gave nothing for 1"},
  {function() strata.times(3, function() error("inside") end) end, "inside"},
}
