-- Where lists of layers are cut: nested lists, repetitions and marks are compared with the equivalent flat
-- list, and every method of partition runs on random networks.
local strata = require "strata"
local expect = require "expect"
local nn = strata.nn

local function job(layers, more)
  local keys = {layers = layers, batch = {micro_batches = 1, micro_batch_size = 1}, device = "cpu"}
  for name, value in pairs(more or {}) do keys[name] = value end
  return strata.job(keys)
end

-- A random list that contains lists and repetitions, and the names and cuts of the equivalent flat list.
local function random_list(depth, names, cuts)
  local list = {}
  for _ = 1, math.random(0, 3) do
    local kind = math.random(depth > 0 and 5 or 2)
    if kind <= 2 then
      local name = "layer" .. #names
      names[#names + 1] = name
      list[#list + 1] = nn.Linear{4, math.random(4), name = name}
    elseif kind == 3 then
      list[#list + 1] = random_list(depth - 1, names, cuts)
    elseif kind == 4 then
      list[#list + 1] = strata.times(math.random(0, 3), function(i)
        names[#names + 1] = "layer" .. #names
        return nn.ReLU{name = names[#names]}
      end)
    elseif #names > 0 and cuts[#cuts] ~= #names then
      cuts[#cuts + 1] = #names
      list[#list + 1] = strata.cut()
    end
  end
  return list
end
for _ = 1, 200 do
  local names, cuts = {}, {}
  local list = random_list(3, names, cuts)
  names[#names + 1] = "last"
  list[#list + 1] = nn.Identity{name = "last"}
  local made = job(list)
  expect.equal(#made.layers, #names)
  for i, layer in ipairs(made.layers) do expect.equal(layer.name, names[i]) end
  -- If there are as many marks as needed, the stages begin at the marks.
  local bounds = made:plan{pipe = #cuts + 1}.bounds
  if #cuts > 0 then
    local wanted = {0}
    for _, cut in ipairs(cuts) do wanted[#wanted + 1] = cut end
    wanted[#wanted + 1] = #names
    expect.equal(bounds, wanted)
    expect.error(function() made:plan{pipe = #cuts + 2} end, "cuts.lua:")
  end
end

-- All methods on random networks must give stages that cover the list in order, none of them empty.
local function network(count)
  local layers, weights = {}, {}
  for i = 1, count do
    local size = math.random(6)
    layers[i] = math.random(3) == 1 and nn.ReLU{} or nn.Linear{size, size, bias = false}
    weights[i] = layers[i].parameters
  end
  return layers, weights
end
for _ = 1, 100 do
  local count = math.random(12)
  local layers, weights = network(count)
  local made = job(layers)
  local pipe = math.random(count)
  for method, wanted in pairs{
    uniform = strata.partition.uniform(count, pipe),
    parameters = strata.partition.balanced(weights, pipe),
  } do
    local plan = made:plan{pipe = pipe, partition = method}
    for stage = 1, pipe do
      local s = plan.stages[stage]
      expect.equal({s.begin, s["end"]}, {plan.bounds[stage], plan.bounds[stage + 1]})
      expect.equal(s["end"] > s.begin, true)
      local sum = 0
      for i = s.begin + 1, s["end"] do
        sum = sum + weights[i]
        expect.equal(plan.layers[i].stage, stage - 1)
      end
      expect.equal(s.parameters, sum)
    end
    expect.equal(plan.bounds, wanted)
  end
end

-- "type:": each stage gets its share of the layers whose type matches the expression, ignoring case.
local types = job{nn.Linear{4, 4}, nn.ReLU{}, nn.Linear{4, 4}, nn.Tanh{}, nn.Linear{4, 4}, nn.ReLU{}, nn.Linear{4, 4}}
local function counts(expression, pipe)
  local bounds = types:plan{pipe = pipe, partition = "type:" .. expression}.bounds
  local found = {}
  for stage = 1, pipe do
    found[stage] = 0
    for i = bounds[stage] + 1, bounds[stage + 1] do
      if types.layers[i].type:lower():find(expression:lower()) then found[stage] = found[stage] + 1 end
    end
  end
  return found
end
expect.equal(counts("Linear", 2), {2, 2})
expect.equal(counts("linear", 4), {1, 1, 1, 1})
expect.equal(counts("relu", 2), {1, 1})
expect.equal(#types:plan{pipe = 2, partition = "type:^(ReLU|Tanh)$"}.bounds, 3)
local named = job{function(x) return x end, nn.ReLU{}, function(x) return x end}
expect.equal(#named.layers, 3)

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
