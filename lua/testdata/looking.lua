-- Inspecting plans: summaries, comparisons, moves, differences, files, memory, advice.
local strata = require "strata"
local expect = require "expect"
local nn = strata.nn

local function job(keys)
  local all = {
    name = "net", input = {shape = {64}}, loss = nn.CrossEntropyLoss{}, device = "cpu", partition = "uniform",
    schedule = "1f1b",
    layers = {
      nn.Linear{64, 32, name = "first"}, nn.ReLU{}, nn.Linear{32, 32}, nn.ReLU{}, nn.Linear{32, 32}, nn.ReLU{},
      nn.Linear{32, 10, name = "last"},
    },
    batch = {micro_batches = 4, micro_batch_size = 8}, optimizer = {"adam"}, parallel = {pipe = 2},
  }
  for key, value in pairs(keys or {}) do all[key] = value end
  return strata.job(all)
end
local net = job()
local plan = net:plan{}

-- The numbers of the summary add up, and they follow changes.
local summary = net:summary()
expect.equal(#summary.layers, 7)
expect.equal(summary.parameters, plan.parameters)
local sums = {parameters = 0, flops = 0, activation_bytes = 0, weight_bytes = 0}
for i, layer in ipairs(summary.layers) do
  expect.equal(layer.stage, plan.layers[i].stage)
  for key, sum in pairs(sums) do sums[key] = sum + layer[key] end
end
for key, sum in pairs(sums) do expect.equal(sum, summary[key]) end
expect.equal(tostring(summary):find("4,522", 1, true) ~= nil, true)
expect.equal(net:summary{pipe = 3}.layers[7].stage, 2)
expect.equal(plan:summary().flops, summary.flops)

-- Comparisons of plans.
local rows = plan:compare{methods = {"uniform", "parameters", {0, 2, 7}}, stages = {2, 3}}
expect.equal(#rows, 6)
expect.equal(rows[3].bounds[2], 2)
expect.equal(rows[6].trouble ~= nil, true) -- the cuts are for two stages, not three
for i = 1, 5 do
  expect.equal(rows[i].balance > 0 and rows[i].balance <= 1, true)
  expect.equal(rows[i].step >= 4 * rows[i].slowest * 0.999, true)
  expect.equal(rows[i].bubble >= 0 and rows[i].memory > 0, true)
end
expect.equal(#plan:compare{schedules = {"1f1b", "gpipe", "zb_h1"}, micro_batches = {2, 4}}, 6)
expect.equal(#plan:compare{}, 1)
expect.equal(plan:compare{methods = {0, 1, 7}}[1].bounds[2], 1)
expect.error(function() plan:compare{method = {"uniform"}} end, "looking.lua:", 'did you mean "methods"?')
expect.error(function() plan:compare{methods = {"unifrom"}} end, 'did you mean "uniform"?')
expect.error(function() plan:compare{micro_batches = {3}} end, "3 micro-batches do not divide the batch of 32")

-- Moves of layers.
expect.equal(table.concat(plan.bounds, " "), "0 4 7")
expect.equal(table.concat(plan:move(3, 1).bounds, " "), "0 3 7")
expect.equal(table.concat(plan:move(1, 1).bounds, " "), "0 1 7")
expect.equal(table.concat(plan:move(5, 0).bounds, " "), "0 6 7")
expect.equal(table.concat(plan.bounds, " "), "0 4 7") -- a move makes a new plan
expect.error(function() plan:move("last", 0) end, "stage 1 would be empty")
expect.error(function() plan:move("first", 1) end, "stage 0 would be empty")
expect.error(function() plan:move(0, 0) end, "is on stage 0 already")
expect.error(function() plan:move(0, 2) end, "there is no stage 2")
expect.error(function() plan:move(7, 0) end, "there is no layer 7; they are 0 to 6")
expect.error(function() plan:move("frist", 1) end, 'did you mean "first"?')
expect.error(function() net:plan{pipe = 3}:move(0, 2) end, "can move to a neighbour")

-- Differences between plans.
expect.equal(tostring(plan:diff(plan)):match("^[^\n]*"), "the plans are equal")
local difference = plan:diff(plan:move(3, 1))
expect.equal(#difference.moved, 1)
expect.equal(difference.moved[1].layer, 3)
expect.equal(difference.changed.bounds.to, "0, 3, 7")
expect.error(function() plan:diff(5) end, "expected a plan")
expect.error(function() plan:diff(job{layers = {nn.Linear{64, 32}, nn.Linear{32, 10}}}:plan{}) end, "different lists")

-- Memory, costs and the schedule.
local memory = plan:memory()
expect.equal(#memory, 2)
for _, rank in ipairs(memory) do
  expect.equal(rank.weights + rank.gradients + rank.optimizer + rank.activations + rank.buffers, rank.total)
  expect.equal(rank.optimizer >= 2 * rank.gradients * 0.99, true) -- Adam has two moments
end
local forecast = plan:forecast()
local simulated = plan:schedule():simulate(plan:costs())
expect.equal(math.abs(simulated.makespan - forecast.step) < 1e-12, true)
expect.equal(simulated.bubble, forecast.bubble)
expect.equal(plan:schedule():gantt(plan:costs()):find("rank 1 |", 1, true) ~= nil, true)

-- Advice: shares of the step, and at most three suggestions.
local advice = net:plan{partition = {0, 1, 7}}:advice()
local share = advice.work
for _, limit in ipairs(advice.limits) do share = share + limit.share end
expect.equal(math.abs(share - 1) < 1e-9, true)
expect.equal(#advice.remedies <= 3 and #advice.remedies > 0, true)
expect.equal(tostring(advice):find("computing", 1, true) ~= nil, true)

-- Files: a script may write only saved plans below its folder.
for _, case in ipairs{
  {"a.lua", "must end in .plan or .json"}, {"a", "must end in"}, {"../a.plan", "below the script's folder"},
  {"/tmp/a.plan", "below the script's folder", '"/tmp/a.plan"'}, {".a.plan", "not hidden"}, {".git/a.json", "not hidden"},
  {"modules/../a.plan", "below the script's folder"}, {"none/a.plan", "there is no file"}, {"", "must end in"},
  {"a\0.plan", "below the script's folder"},
} do
  expect.error(function() plan:save(case[1]) end, "looking.lua:", unpack(case, 2))
end
expect.error(function() strata.plan("../plans.lua") end, "below the script's folder")
expect.error(function() strata.plan("plans.lua") end, "no saved plan")
expect.error(function() strata.plan("none.plan") end, "there is no file")
