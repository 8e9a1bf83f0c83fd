-- print, tostring, JSON and the string functions.
local strata = require "strata"
local expect = require "expect"
local json = strata.json

expect.equal(tostring({1, 2, 3}), "{1, 2, 3}")
expect.equal(tostring({}), "{}")
expect.equal(tostring({b = 1, a = "x", 7, [10] = true, ["a b"] = {}}), '{7, ["a b"]={}, [10]=true, a="x", b=1}')
expect.equal(tostring({{1, {2}}, x = {y = 0.5}}), "{{1, {2}}, x={y=0.5}}")
expect.equal(tostring{["1a"] = 1, ["end"] = 2, [""] = 3, _ok = 4, ['"'] = 5},
  '{[""]=3, ["1a"]=1, ["\\""]=5, ["end"]=2, _ok=4}')
local loop = {1}
loop[2] = loop
expect.equal(tostring(loop), "{1, {...}}")
expect.equal(tostring(setmetatable({}, {__tostring = function() return "mine" end})), "mine")
expect.equal(tostring(nil), "nil")
expect.equal(tostring(1e15), "1e+15")
expect.equal(tostring(0.1), "0.1")
expect.equal(tostring("x"), "x")
local function named(x) return x end
expect.equal(tostring(named):match("^function named %(.*values.lua:20%)$") ~= nil, true)
expect.equal(tostring(print), "function (a built-in function)")
local long = {}
for i = 1, 1000 do long[i] = i end
expect.equal(tostring(long):find("... 800 more", 1, true) ~= nil, true)
local wide = {("a"):rep(60), ("b"):rep(60)}
expect.equal(tostring(wide), '{\n  "' .. wide[1] .. '",\n  "' .. wide[2] .. '",\n}')

expect.equal(json.decode '{"a": [1, 2.5, "x", true, null], "b": {}}', {a = {1, 2.5, "x", true, json.null}, b = {}})
expect.equal(json.encode{1, 2, {x = "y"}}, '[1,2,{"x":"y"}]')
expect.equal(json.encode({1}, 2), "[\n  1\n]")
expect.equal(json.encode(2 ^ 53), "9007199254740992")
expect.equal(json.encode(0.1), "0.1")
expect.equal(json.encode{}, "[]")
expect.equal(json.decode(json.encode("\0\1\"\\")), "\0\1\"\\")
expect.error(function() json.decode "{" end, "values.lua:")
expect.error(function() json.decode() end, "JSON text")
expect.error(function() json.encode(loop) end, "holds itself")
expect.error(function() json.encode{[1.5] = 1} end, "the number 1.5")
expect.error(function() json.encode{a = {b = coroutine.create(print)}} end, "the value.a.b", "thread")

-- string functions as in Lua 5.1.
expect.equal({("hello world"):find("o w")}, {5, 7})
expect.equal({("hello"):find("l", 4)}, {4, 4})
expect.equal({("hello"):find("xyz")}, {nil})
expect.equal({("a.b"):find(".", 1, true)}, {2, 2})
expect.equal({("a.b"):find("%.")}, {2, 2})
expect.equal({("key=val"):find("(%w+)=(%w+)")}, {1, 7, "key", "val"})
expect.equal({("hello"):find("", 10)}, {6, 5})
expect.equal({("hello"):find("", 6)}, {6, 5})
expect.equal({("hello"):find("l", -2)}, {4, 4})
expect.equal({("key=val"):match("(%w+)=(%w+)")}, {"key", "val"})
expect.equal(("  x "):match("^%s*(.-)%s*$"), "x")
expect.equal(("hello"):match("()ll()"), 3)
expect.equal(("2024"):match("%d+"), "2024")
expect.equal({("hello"):gsub("l", "L")}, {"heLLo", 2})
expect.equal({("hello"):gsub("l", "L", 1)}, {"heLlo", 1})
expect.equal({("hello"):gsub("", "-")}, {"-h-e-l-l-o-", 6})
expect.equal({("abc"):gsub("%w", "%0%0")}, {"aabbcc", 3})
expect.equal({("abc def"):gsub("(%w+) (%w+)", "%2 %1")}, {"def abc", 1})
expect.equal({("abc"):gsub("^a", "x")}, {"xbc", 1})
expect.equal({("$name is $what"):gsub("%$(%w+)", {name = "Lua", what = 5})}, {"Lua is 5", 2})
expect.equal({("abc"):gsub("%w", function(c) if c ~= "b" then return c:upper() end end)}, {"AbC", 3})
expect.equal({("100%"):gsub("%%", "%%%%")}, {"100%%", 1})
expect.equal((" a b "):gsub("%s", ""), "ab")
expect.equal({string.gsub(12345, 3, "x")}, {"12x45", 1})
local words = {}
for word in ("one two  three"):gmatch("%a+") do words[#words + 1] = word end
expect.equal(words, {"one", "two", "three"})
local pairs_found = {}
for k, v in ("a=1, b=2"):gmatch("(%w+)=(%w+)") do pairs_found[k] = v end
expect.equal(pairs_found, {a = "1", b = "2"})
local empty = 0
for _ in ("abc"):gmatch("") do empty = empty + 1 end
expect.equal(empty, 4)
expect.error(function() ("x"):gsub("x", true) end, "expected a string, a table or a function")
expect.error(function() ("x"):gsub("x", "%9") end, "invalid capture index")
expect.error(function() ("x"):gsub("x", function() return {} end) end, "invalid replacement value (a table)")
expect.error(function() ("x"):find("[") end, "values.lua:", "missing ']'")

-- load and coroutines.
expect.equal(load("return 1 + 1")(), 2)
expect.equal(loadstring("return ...")(7), 7)
local pieces = {"return ", "4", "2"}
expect.equal(load(function() return table.remove(pieces, 1) end)(), 42)
local f, message = load("x =", "chunk")
expect.equal(f, nil)
expect.equal(message:find('[string "chunk"]:1:', 1, true), 1)

local co = coroutine.create(function(a, b)
  local c = coroutine.yield(a + b)
  local d, e = coroutine.yield(c * 2)
  return d + e
end)
expect.equal({coroutine.resume(co, 1, 2)}, {true, 3})
expect.equal(coroutine.status(co), "suspended")
expect.equal({coroutine.resume(co, 5)}, {true, 10})
expect.equal({coroutine.resume(co, 3, 4)}, {true, 7})
expect.equal(coroutine.status(co), "dead")
expect.equal({coroutine.resume(co)}, {false, "cannot resume a dead coroutine"})
local count = coroutine.wrap(function() for i = 1, 3 do coroutine.yield(i) end end)
expect.equal({count(), count(), count()}, {1, 2, 3})
expect.error(function() coroutine.wrap(function() error("inside") end)() end, "values.lua:", "inside")
expect.error(function() coroutine.resume(7) end, "a coroutine")
local me
me = coroutine.create(function() return coroutine.resume(me) end)
expect.equal({coroutine.resume(me)}, {true, false, "cannot resume the running coroutine"})
