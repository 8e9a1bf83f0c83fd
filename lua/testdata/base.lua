-- The functions of Lua's own libraries that the sandbox replaces, and those that it leaves unchanged.
local strata = require "strata"
local expect = require "expect"

-- table.insert and table.remove, compared with a list that is rebuilt each time.
for _ = 1, 200 do
  local list, wanted = {}, {}
  for i = 1, math.random(0, 8) do
    local position = math.random(1, #wanted + 1)
    table.insert(list, position, i)
    local longer = {}
    for k = 1, position - 1 do longer[k] = wanted[k] end
    longer[position] = i
    for k = position, #wanted do longer[k + 1] = wanted[k] end
    wanted = longer
    expect.equal(list, wanted)
  end
  table.insert(list, "last")
  expect.equal(table.remove(list), "last")
  expect.equal(list, wanted)
end
expect.error(function() table.insert({}, 3, "x") end, "position", "within 1 and 1")
expect.error(function() table.insert({1, 2}, 0, "x") end, "within 1 and 3")
expect.error(function() table.insert({}, 1.5, "x") end, "a position")
expect.error(function() table.insert({}, "one", "x") end, "a position")
expect.error(function() table.insert({}) end, "a table, a position and a value")
expect.error(function() table.insert({}, 1, 2, 3) end, "a table, a position and a value")
expect.error(function() table.insert("text", 1) end, "table expected")

-- math.random stays within its bounds and reaches all values; setting a seed starts the sequence again.
local function met(low, high)
  local seen, count = {}, 0
  for _ = 1, 400 do
    local number = math.random(low, high)
    expect.equal(number >= low and number <= high and number % 1 == 0, true)
    if not seen[number] then count = count + 1 end
    seen[number] = true
  end
  return count
end
expect.equal(met(1, 6), 6)
expect.equal(met(-3, 3), 7)
expect.equal(met(5, 5), 1)
for _ = 1, 100 do
  local share = math.random()
  expect.equal(share >= 0 and share < 1, true)
end
local function draw(seed)
  math.randomseed(seed)
  local numbers = {}
  for i = 1, 8 do numbers[i] = math.random(1000) end
  return numbers
end
expect.equal(draw(7), draw(7))
expect.equal(tostring(draw(7)) ~= tostring(draw(8)), true)
expect.error(function() math.random(0) end, "no number lies between 1 and 0")
expect.error(function() math.random(3, 2) end, "no number lies between 3 and 2")
expect.error(function() math.random("six") end, "a whole number")
expect.error(function() math.randomseed(0.5) end, "a whole number")
expect.error(function() math.randomseed() end, "a whole number")

-- load takes text only, as a string or in pieces, and a name for its errors.
expect.equal(load("return ...")(1), 1)
expect.equal({load("return 1, 2")()}, {1, 2})
local pieces = {"return ", "4", "2"}
expect.equal(load(function() return table.remove(pieces, 1) end)(), 42)
expect.equal(load("x =") == nil, true)
expect.equal(select(2, load("x ="))
  :find('[string "x ="]:1:', 1, true), 1)
expect.equal(select(2, load("x =\n\n= 1", "mine")):find('[string "mine"]:3:', 1, true), 1)
expect.equal(select(2, load("x =", ("long"):rep(100))):find(("long"):rep(8), 1, true) ~= nil, true)
expect.equal(#select(2, load("x =", ("long"):rep(100))) < 200, true)
expect.equal(select(2, load("x =", "first\nsecond")):find("second", 1, true), nil)
expect.error(function() load() end, "a string or a function")
expect.error(function() load(7) end, "a string or a function")
expect.error(function() load("x = 1", {}) end, "a name")
expect.error(function() load(function() return 7 end) end, "a string from load's function")
expect.error(function() load(function() error("mine") end) end, "mine")
load("made_here = 5")()
expect.equal(made_here, 5)
made_here = nil

-- Coroutines: values in both directions, errors, nesting, and coroutines that cannot be resumed.
local function generate(n)
  return coroutine.wrap(function() for i = 1, n do coroutine.yield(i, i * i) end end)
end
local sum, squares = 0, 0
for i, square in generate(10) do sum, squares = sum + i, squares + square end
expect.equal({sum, squares}, {55, 385})
local function nested(depth)
  return coroutine.wrap(function()
    coroutine.yield(depth)
    if depth > 0 then for d in nested(depth - 1) do coroutine.yield(d) end end
  end)
end
local depths = {}
for depth in nested(5) do depths[#depths + 1] = depth end
expect.equal(depths, {5, 4, 3, 2, 1, 0})
local failing = coroutine.create(function() error("inside") end)
local ok, message = coroutine.resume(failing)
expect.equal(ok, false)
expect.equal(message:find("base.lua:%d+: inside") ~= nil, true)
expect.equal(coroutine.status(failing), "dead")
expect.equal((coroutine.resume(failing)), false)
local odd = coroutine.create(function() error({code = 7}) end)
expect.equal(select(2, coroutine.resume(odd)).code, 7)
local done = coroutine.wrap(function() return "end" end)
expect.equal(done(), "end")
expect.error(done, "cannot resume a dead coroutine")
expect.error(function() coroutine.wrap(7) end, "a function")
expect.error(function() coroutine.resume() end, "a coroutine")
expect.error(function() coroutine.create("x") end, "base.lua:")
local me
me = coroutine.create(function() return coroutine.resume(me) end)
expect.equal({coroutine.resume(me)}, {true, false, "cannot resume the running coroutine"})
local outside = coroutine.running()
expect.equal(coroutine.wrap(function() return coroutine.running() ~= outside end)(), true)
expect.equal(coroutine.wrap(function() return pcall(error, "kept", 0) end)(), false)
local through = coroutine.wrap(function() return pcall(function() return coroutine.yield(1) end) end)
expect.equal(through(), 1)
expect.equal({through(2)}, {true, 2})

-- pcall and xpcall return the raised value unchanged.
local raised = {}
expect.equal(select(2, pcall(error, raised)) == raised, true)
expect.equal({pcall(error)}, {false})
expect.equal({xpcall(function() error("x", 0) end, function(text) return text .. "!" end)}, {false, "x!"})
expect.equal({xpcall(function(...) return ... end, print, 1, 2)}, {true, 1, 2})
expect.equal(select(2, pcall(function() error("here") end)):find("base.lua:%d+: here") ~= nil, true)
expect.equal(select(2, pcall(function() error("bare", 0) end)), "bare")
expect.equal({assert(1, 2)}, {1, 2})
expect.error(function() assert(false) end, "assertion failed")
expect.error(function() assert(nil, "my words") end, "my words")

-- tostring and print use the object's own text.
local object = setmetatable({}, {__tostring = function() return "an object" end})
expect.equal(tostring(object), "an object")
expect.equal(tostring({object, o = object}), "{an object, o=an object}")
expect.equal(tostring(setmetatable({}, {__tostring = function() return 7 end})), "7")
expect.error(function() tostring(setmetatable({}, {__tostring = function() return {} end})) end,
  "__tostring must give a string")
expect.error(function() tostring(setmetatable({}, {__tostring = function() error("mine") end})) end, "mine")
expect.equal(tostring(-0.5), "-0.5")
expect.equal(tostring(1 / 0), "inf")
expect.equal(tostring(-1 / 0), "-inf")
expect.equal(tostring(2 ^ 53), "9.007199254741e+15")
expect.equal(tostring(123456789), "123456789")
expect.equal(tostring(true) .. tostring(false), "truefalse")
expect.equal(tostring({[1.5] = 1}), "{[1.5]=1}")
expect.equal(tostring({[false] = 1}), "{[false]=1}")
local deep = {}
for _ = 1, 50 do deep = {deep} end
expect.equal(tostring(deep):find("{...}", 1, true) ~= nil, true)
local shared = {1}
expect.equal(tostring({shared, shared}), "{{1}, {1}}")

-- The collector can be run, but not stopped.
expect.equal(collectgarbage(), 0)
expect.equal(collectgarbage("count") > 0, true)
expect.error(function() collectgarbage("stop") end, '"collect", "count" or "step"')
expect.error(function() collectgarbage("generational") end, "generational")

-- Tables with metatables made by the script work as usual.
local Vector = {}
Vector.__index = Vector
Vector.__add = function(a, b) return setmetatable({a[1] + b[1]}, Vector) end
Vector.__eq = function(a, b) return a[1] == b[1] end
Vector.__lt = function(a, b) return a[1] < b[1] end
Vector.__le = function(a, b) return a[1] <= b[1] end
Vector.__call = function(self, n) return self[1] * n end
Vector.__concat = function(a, b) return "joined" end
Vector.__unm = function(a) return setmetatable({-a[1]}, Vector) end
function Vector:get() return self[1] end
local one, two = setmetatable({1}, Vector), setmetatable({2}, Vector)
expect.equal((one + two):get(), 3)
expect.equal(one + one == two, true)
expect.equal(one < two and one <= two and not (two < one), true)
expect.equal(two(5), 10)
expect.equal(one .. two, "joined")
expect.equal((-two):get(), -2)
local sealed = setmetatable({}, {__metatable = "sealed"})
expect.equal(getmetatable(sealed), "sealed")
expect.error(function() setmetatable(sealed, {}) end, "protected")
local counted = setmetatable({}, {__newindex = function(t, k, v) rawset(t, k, v * 2) end})
counted.x = 4
expect.equal(counted.x, 8)
