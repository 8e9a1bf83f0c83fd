-- What scripts must not reach or break: they get no access to files, code or other states, cannot change
-- a library for others, and cannot hide anything by pcall.
local strata = require "strata"
local expect = require "expect"

-- The exact list of globals. A new name here must be a decision, not an accident.
local function names(t)
  local list = {}
  for name in pairs(t) do list[#list + 1] = name end
  table.sort(list)
  return table.concat(list, " ")
end
local before = names(_G)
for name in ("_G _VERSION assert bit collectgarbage coroutine error getmetatable ipairs load loadstring "
  .. "math next pairs pcall print rawequal rawget rawset require select setmetatable string table "
  .. "tonumber tostring type unpack xpcall"):gmatch("%S+") do
  expect.equal((" " .. before .. " "):find(" " .. name .. " ", 1, true) ~= nil, true)
end
for _, name in ipairs{
  "os", "io", "debug", "ffi", "jit", "package", "dofile", "loadfile", "module", "getfenv", "setfenv",
  "newproxy", "gcinfo", "buffer",
} do
  expect.equal(rawget(_G, name), nil)
  expect.error(function() require(name) end, "there is no file")
end
expect.equal(names(coroutine), "create isyieldable resume running status wrap yield")
expect.equal(names(string),
  "byte char find format gmatch gsub len lower match rep reverse sub upper")
expect.equal(names(bit), "arshift band bnot bor bswap bxor lshift rol ror rshift tobit tohex")
for _, name in ipairs{"dump", "gfind", "buffer"} do expect.equal(string[name], nil) end

-- Bytecode is refused in every form.
for _, bytes in ipairs{"\27LJ\2\n", "\27Lua", "\27", "\27LJ\1" .. ("\0"):rep(100)} do
  local loaded, why = load(bytes)
  expect.equal(loaded, nil)
  expect.equal(why:find("bytecode", 1, true) ~= nil, true)
  expect.equal((loadstring(bytes)), nil)
  expect.equal((load(bytes, "a name")), nil)
  local given = false
  expect.equal((load(function()
    if given then return nil end
    given = true
    return bytes
  end)), nil)
end
-- It is also refused in pieces. With a line before it, it is text that does not parse.
local pieces = {"\27", "L", "J"}
expect.equal((load(function() return table.remove(pieces, 1) end)), nil)
expect.equal((load("\n\27LJ\2")), nil)
expect.equal((load("#!\n\27LJ\2")), nil)

-- No function can read or write the environment of another; upvalues stay private.
local secret = "private"
local function holder() return secret end
expect.equal(holder(), "private")
expect.equal(pcall(function() return debug.getupvalue(holder, 1) end), false)
local sandboxed = load("x_of_load = 1 return x_of_load")
expect.equal(sandboxed(), 1)
expect.equal(x_of_load, 1) -- load uses the script's globals, as usual
x_of_load = nil

-- The metatables of the library's objects show only their name and cannot be replaced.
local objects = {
  layer = strata.nn.ReLU{}, ["layer type"] = strata.nn.ReLU, topology = strata.topology(4),
  grid = strata.topology(4):grid(0), program = strata.schedule("gpipe"), cut = strata.cut(),
}
for name, object in pairs(objects) do
  expect.equal(type(object), "userdata")
  expect.equal(getmetatable(object), name)
  expect.error(function() setmetatable(object, {}) end, "table expected")
  expect.error(function() object.new = 1 end, "escapes.lua:", "cannot be changed")
  expect.error(function() return object.nothing end, "escapes.lua:", '"nothing"')
  expect.error(function() return object[1] end, "has no elements")
  expect.error(function() return object + 1 end, "arithmetic")
  expect.error(function() return object .. "" end, "concatenate")
  expect.error(function() return #object end, "length")
  expect.error(function() return object < object end, "compare")
  expect.error(function() for _ in pairs(object) do end end, "table expected")
  expect.error(function() rawset(object, "x", 1) end, "table expected")
  expect.error(function() rawget(object, "type") end, "table expected")
  expect.equal(object == object, true)
  expect.equal(object == nil, false)
  expect.equal(#tostring(object) > 0, true)
end
-- Methods accept only their own type of object.
for _, call in ipairs{
  function() strata.topology(4).rank(strata.nn.ReLU{}, {}) end,
  function() strata.topology(4).coord({}, 0) end,
  function() strata.topology(4).coord(nil, 0) end,
  function() strata.schedule("gpipe").csv(strata.topology(4)) end,
  function() strata.schedule("gpipe").csv() end,
  function() strata.schedule("gpipe").csv("text") end,
} do
  expect.error(call, "escapes.lua:", "expected a")
end

-- The metatable of strings is shared by all: it cannot be read or changed.
expect.equal(getmetatable "x", "string")
expect.error(function() setmetatable("x", {}) end, "table expected")
expect.equal(("x").upper, string.upper)

-- Finalisers of the script's tables are never called.
for _ = 1, 50 do
  setmetatable({}, {__gc = function() error("never") end})
  local held = {strata.topology(4)}
  held[1] = nil
end
collectgarbage()

-- pcall catches the script's own errors, and the script continues.
for _, raise in ipairs{
  function() error("text") end, function() error({}) end, function() error() end,
  function() strata.nn.Linear{} end, function() local x = nil + 1 end, function() ("x"):rep(1, 2, 3)() end,
  function() strata.json.decode("{") end, function() strata.job{} end, function() load("x =")() end,
  function() coroutine.wrap(function() error("inside") end)() end, function() require "missing" end,
  function() string.rep("x", 2 ^ 30):rep(2 ^ 10) end,
} do
  for _ = 1, 3 do expect.equal((pcall(raise)), false) end
  expect.equal((coroutine.resume(coroutine.create(raise))), false)
  expect.equal((xpcall(raise, function() return "handled" end)), false)
end
-- A message handler that fails ends as well.
expect.equal((xpcall(error, function() error("again") end)), false)
expect.equal((xpcall(function() local function f() return 1 + f() end f() end, tostring)), false)

-- Neither many coroutines nor deeply nested ones crash the process.
local many = {}
for i = 1, 2000 do
  many[i] = coroutine.create(function(x) return x, coroutine.yield(i) end)
  coroutine.resume(many[i])
end
for i = 1, 2000 do expect.equal(coroutine.status(many[i]), "suspended") end
many = nil
collectgarbage()
local function nest(n)
  if n == 0 then return "bottom" end
  return coroutine.wrap(function() return nest(n - 1) end)()
end
expect.equal(nest(50), "bottom")
expect.error(function() nest(1e5) end, "nested too deeply")
expect.equal(nest(50), "bottom")
expect.equal(names(_G), before)
