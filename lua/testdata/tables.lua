-- Every table of arguments is checked: an unknown name is an error with the nearest name, and so is a
-- table where none is taken.
local strata = require "strata"
local expect = require "expect"
local nn = strata.nn

local job = strata.job{
  input = {shape = {4}}, layers = {nn.Linear{4, 4}, nn.Linear{4, 4}}, loss = nn.MSELoss{}, device = "cpu",
  batch = {micro_batches = 2, micro_batch_size = 2},
}
local plan = job:plan{pipe = 2}
local topology = strata.topology{pipe = 2, data = 2}
local grid = topology:grid(0)
local program = plan:schedule()

local function misspelled(name, right, f)
  return {f, "tables.lua:", '"' .. name .. '"', right}
end
expect.errors{
  misspelled("compta", "compat", function() strata.partition.balanced({1, 2}, 1, {compta = "deepspeed"}) end),
  misspelled("dtaa", "data", function() strata.topology{pipe = 2, dtaa = 2} end),
  misspelled("pip", "pipe", function() topology:rank{pip = 1, data = 0} end),
  misspelled("pip", "pipe", function() topology:filter{pip = 1} end),
  misspelled("omitt", "omit", function() topology:repr(0, {omitt = {}}) end),
  misspelled("dat", "data", function() grid:stage_to_global(1, {dat = 0}) end),
  misspelled("piep", "pipe", function() job:plan{piep = 2} end),
  misspelled("stepz", "steps", function() job:train{stepz = 2} end),
  misspelled("stepz", "steps", function() job:start{stepz = 2} end),
  misspelled("piep", "pipe", function() job:summary{piep = 2} end),
  misspelled("gpuz", "gpus", function() job:search{gpuz = 2} end),
  misspelled("method", "methods", function() plan:compare{method = {"uniform"}} end),
  misspelled("rank", "ranks", function() strata.schedule("gpipe", {rank = 2}) end),
  misspelled("tied_stage", "tied_stages", function() program:lowered{tied_stage = {0}} end),
  misspelled("widht", "width", function() program:gantt{widht = 80} end),
  misspelled("formward", "forward", function() strata.layer{name = "A", formward = print} end),
  misspelled("wieght", "weight", function() strata.tied{"key", nn.Linear{2, 2}, wieght = "bias"} end),
  misspelled("paht", "path", function() strata.data.text{paht = "a", length = 2} end),
  misspelled("layerz", "layers", function() strata.job{layerz = {}} end),
  misspelled("stage_rank", "stage_ranks", function() strata.schedule.parse("0F0", {stage_rank = {0}}) end),
}

local options = {wide = true}
for name, f in pairs{
  read = function() strata.read("tables.lua", options) end,
  plan = function() strata.plan("a.plan", options) end,
  job = function() strata.job({layers = {}}, options) end,
  options = function() strata.options({}, options) end,
  load = function() strata.load("modules/inner/job.lua", {}, options) end,
  times = function() strata.times(1, function() return nn.ReLU{} end, options) end,
  decode = function() strata.json.decode("{}", options) end,
  encode = function() strata.json.encode({}, 1, options) end,
  uniform = function() strata.partition.uniform(4, 2, options) end,
  balanced = function() strata.partition.balanced({1}, 1, {}, options) end,
  topology = function() strata.topology(12, options) end,
  rank = function() topology:rank({pipe = 0, data = 0}, options) end,
  coord = function() topology:coord(0, options) end,
  get_stage_id = function() grid:get_stage_id(options) end,
  job_plan = function() job:plan({}, options) end,
  search = function() job:search({gpus = 1}, options) end,
  train = function() job:train({}, options) end,
  svg = function() plan:svg(options) end,
  html = function() plan:html(options) end,
  summary = function() plan:summary(options) end,
  forecast = function() plan:forecast(options) end,
  memory = function() plan:memory(options) end,
  advice = function() plan:advice(options) end,
  costs = function() plan:costs(options) end,
  schedule = function() plan:schedule(options) end,
  compare = function() plan:compare({}, options) end,
  move = function() plan:move(0, 1, options) end,
  csv = function() program:csv(options) end,
  check = function() program:check(options) end,
  buffers = function() program:buffers(options) end,
  parse = function() strata.schedule.parse("0F0", {}, options) end,
} do
  local ok, message = pcall(f)
  if ok or not message:find("tables.lua:%d+: expected no table behind the") or not message:find("the key wide", 1, true) then
    error(name .. ": expected an error, got: " .. tostring(message))
  end
end
expect.error(function() job:search{64} end, "search takes options by name", "the number 64")

-- Further arguments that are not tables are allowed, as in Lua: gsub also returns its count.
expect.equal(strata.json.decode(("{'a': 1}"):gsub("'", '"')).a, 1)
