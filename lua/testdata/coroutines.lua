-- Use of the library within coroutines, and of coroutines within functions that the library calls.
local strata = require "strata"
local expect = require "expect"
local nn = strata.nn

local function inside(f) return coroutine.wrap(f)() end

-- Everything works in a coroutine at any depth, with the right errors and places.
local function job()
  return strata.job{
    input = {shape = {4}}, layers = strata.times(3, function() return nn.Linear{4, 4} end), device = "cpu",
    batch = {micro_batches = 2, micro_batch_size = 1},
    partition = function(layers, stages) return inside(function() return {0, 1, #layers} end) end,
  }
end
expect.equal(inside(job):plan{pipe = 2}.bounds, {0, 1, 3})
expect.equal(inside(function() return inside(function() return inside(job) end) end):plan{pipe = 2}.bounds, {0, 1, 3})
expect.equal(inside(function() return strata.json.encode{1, {a = 2}} end), '[1,{"a":2}]')
expect.equal(inside(function() return require "modules.inner.size" end), 6)
expect.equal(inside(function() return strata.read "modules/text.txt" end), "no job")
expect.equal(inside(function() return #strata.load("modules/inner/job.lua").layers end), 2)
expect.equal(inside(function() return strata.schedule("1f1b", {ranks = 2}):check() end), true)
expect.equal(inside(function() return tostring(strata.topology(4)) end), "pipe=2 data=2 (4 ranks)")
for _, f in ipairs{
  function() nn.Linear{1} end, function() strata.job{} end, function() strata.topology(0) end,
  function() strata.json.decode "{" end, function() require "missing" end, function() strata.read "missing" end,
} do
  local _, outside = pcall(f)
  local co = coroutine.create(f)
  local ok, message = coroutine.resume(co)
  expect.equal(ok, false)
  expect.equal(message, outside)
  expect.equal(coroutine.status(co), "dead")
end

-- Values made in a coroutine stay valid after it has ended.
local made = {}
for i = 1, 20 do
  coroutine.wrap(function()
    made[i] = {layer = nn.Linear{i, 2}, topology = strata.topology(i), f = function() return i end}
    if i % 2 == 0 then coroutine.yield() end
  end)()
end
collectgarbage()
for i = 1, 20 do
  expect.equal(made[i].layer.parameters, 2 * i + 2)
  expect.equal(made[i].topology.world_size, i)
  expect.equal(made[i].f(), i)
end

-- A function called by the library cannot yield; that is an error, and the script can continue after it.
local function yields() coroutine.yield("out") end
local Own = strata.layer{name = "Own", init = yields, forward = function(self, x) return x end}
for _, f in ipairs{
  function() strata.times(1, yields) end,
  function() ("x"):gsub("x", yields) end,
  function() table.sort({2, 1}, yields) end,
  function() tostring(setmetatable({}, {__tostring = yields})) end,
  function() load(yields) end,
  function() Own{} end,
  function() job():plan{pipe = 2, partition = yields} end,
} do
  for _ = 1, 2 do
    local co = coroutine.create(f)
    local ok, message = coroutine.resume(co)
    expect.equal(ok, false)
    expect.equal(message:find("yield", 1, true) ~= nil, true)
    expect.equal(coroutine.status(co), "dead")
  end
  expect.equal(inside(function() return 1 end), 1)
end
expect.error(function() coroutine.yield() end, "yield")

-- A function called by Lua itself may yield: metamethods, iterators, pcall.
local meta = setmetatable({}, {
  __add = function(_, x) return coroutine.yield(x) end,
  __index = function(_, k) return coroutine.yield(k) end,
})
local co = coroutine.wrap(function()
  local sum = meta + 5
  local field = meta.name
  local ok, caught = pcall(function() return coroutine.yield("in pcall") end)
  return sum, field, ok, caught
end)
expect.equal(co(), 5)
expect.equal(co("sum"), "name")
expect.equal(co("field"), "in pcall")
expect.equal({co("caught")}, {"sum", "field", true, "caught"})

-- A generator over micro-batches, as a script's data may be written.
local function batches(n)
  return coroutine.wrap(function()
    for i = 0, n - 1 do coroutine.yield(i, {i, i + 1}) end
  end)
end
local seen = 0
for i, row in batches(100) do
  expect.equal(i, seen)
  expect.equal(row, {i, i + 1})
  seen = seen + 1
end
expect.equal(seen, 100)

-- coroutine.status, called from inside and outside of the coroutine.
local outer
outer = coroutine.create(function()
  expect.equal(coroutine.status(outer), "running")
  expect.equal(coroutine.running() == outer, true)
  local inner = coroutine.create(function()
    expect.equal(coroutine.status(outer), "normal")
    expect.equal({coroutine.resume(outer)}, {false, "cannot resume non-suspended coroutine"})
    coroutine.yield()
  end)
  expect.equal(coroutine.status(inner), "suspended")
  local ok, why = coroutine.resume(inner)
  if not ok then error(why, 0) end
  expect.equal(coroutine.status(inner), "suspended")
  coroutine.yield()
end)
local ok, why = coroutine.resume(outer)
if not ok then error(why, 0) end
expect.equal(coroutine.status(outer), "suspended")
expect.equal(coroutine.resume(outer), true)
expect.equal(coroutine.status(outer), "dead")
