-- string, table, math and bit as scripts see them, compared with the manual of Lua 5.1.
local strata = require "strata"
local expect = require "expect"

-- Each case is {expected result, function, arguments ...}.
local function results(cases)
  for i, case in ipairs(cases) do
    local got = {case[2](unpack(case, 3, table.maxn(case)))}
    local wanted = type(case[1]) == "table" and case[1] or {case[1]}
    if tostring(got) ~= tostring(wanted) then
      error(("case %d: expected %s, got %s"):format(i, tostring(wanted), tostring(got)), 2)
    end
  end
end

-- string.format.
local format = string.format
results{
  {"plain", format, "plain"}, {"100%", format, "100%%"}, {"7", format, "%d", 7},
  {"    7|7    |00007", format, "%5d|%-5d|%05d", 7, 7, 7}, {"+7  7", format, "%+d % d", 7, 7},
  {"ff FF 0xff 377", format, "%x %X %#x %o", 255, 255, 255, 255}, {"Lu", format, "%c%c", 76, 117},
  {"3.142", format, "%.3f", math.pi}, {"    3.14|", format, "%8.2f|", math.pi},
  {"1.000000e+10", format, "%e", 1e10}, {"0.1 1e+20", format, "%g %g", 0.1, 1e20},
  {"text|  text|text  |te", format, "%s|%6s|%-6s|%.2s", "text", "text", "text", "text"},
  {"true nil 1.5", format, "%s %s %s", true, nil, 1.5}, {'"a\\\nb\\"c\\0"', format, "%q", 'a\nb"c\0'},
  {"-3 3 3", format, "%i %u %d", -3, 3, "3"}, {"%d", format, "%%d"}, {"", format, ""},
  {"9007199254740992", format, "%d", 2 ^ 53}, {"inf -inf", format, "%g %g", 1 / 0, -1 / 0},
  {"a\0b", format, "%s", "a\0b"},
}
-- Values that are not text are formatted as print() shows them: without addresses, which differ between ranks.
results{
  {"{1, 2} {a=1}", format, "%s %s", {1, 2}, {a = 1}}, {"ReLU()", format, "%s", strata.nn.ReLU{}},
  {"mine", format, "%s", setmetatable({}, {__tostring = function() return "mine" end})},
  {"function (a built-in function)", format, "%s", print}, {"  {}", format, "%4s", {}},
}
expect.errors{
  {function() format() end, "string expected"},
  {function() format("%d") end, "value expected"},
  {function() format("%d", "x") end, "number expected, got string"},
  {function() format("%s") end, "value expected"},
  {function() format("%y", 1) end, "invalid option '%y'"},
  {function() format("%", 1) end, "invalid option '%'"},
  {function() format("%123d", 1) end, "invalid option"},
  {function() format("%.200f", 1) end, "invalid option"},
}

-- The other string functions without patterns.
results{
  {0, string.len, ""}, {3, string.len, "a\0b"}, {1, string.len, 5}, {"cba", string.reverse, "abc"},
  {"ABÉ1", string.upper, "abÉ1"}, {"abÉ1", string.lower, "ABÉ1"}, {"", string.rep, "x", 0},
  {"", string.rep, "x", -1}, {"xxx", string.rep, "x", 3}, {"x,x,x", string.rep, "x", 3, ","},
  {"", string.rep, "", 1e6}, {"ell", string.sub, "hello", 2, -2}, {"hello", string.sub, "hello", -100, 100},
  {"", string.sub, "hello", 4, 2}, {"o", string.sub, "hello", -1}, {"hello", string.sub, "hello", 0},
  {"", string.sub, "hello", 6}, {{97, 98, 99}, string.byte, "abc", 1, -1}, {97, string.byte, "abc"},
  {{}, string.byte, "abc", 4}, {{}, string.byte, ""}, {"Hi\0", string.char, 72, 105, 0}, {"", string.char},
  {{2, 2}, string.find, "a.c", ".", 2, true}, {{1, 1}, string.find, "a.c", "."},
}
expect.errors{
  {function() string.char(256) end, "invalid value"},
  {function() string.char(-1) end, "invalid value"},
  {function() string.rep() end, "string expected"},
  {function() string.rep({}, 2) end, "string expected, got table"},
  {function() ("x"):nothing() end, "libraries.lua:", "nothing"},
}
expect.equal(string.dump, nil)
expect.equal(getmetatable "", "string")
for byte = 0, 255 do expect.equal(string.byte(string.char(byte)), byte) end

-- Patterns, case by case; testdata/roundtrips.lua tests their properties.
results{
  {{"x y", 1}, string.gsub, "  x y ", "^%s*(.-)%s*$", "%1"},
  {{5, 11, "quick"}, string.find, "THE (quick) fox", "%((%a+)%)"},
  {"THE [quick] fox", function(s) return (s:gsub("%((%w+)%)", "[%1]")) end, "THE (quick) fox"},
  {{"k", "v"}, string.match, "k = v", "^(%w+)%s*=%s*(%w+)$"},
  {{1, 4}, string.match, "abc", "()abc()"}, {"0x1F", string.match, "is 0x1F.", "0[xX]%x+"},
  {"THE", string.match, "THE fox", "%f[%a]%a+%f[%A]"}, {"fox", string.match, "THE fox", "%f[%a]%l+"},
  {"[[x]]", string.match, "a[[x]]b", "%b[]"}, {"ab", string.match, "abab", "^(ab)%1$"}, {nil, string.match, "abac", "^(ab)%1$"},
  {"-", string.match, "a-b", "[-]"}, {"]", string.match, "a]b", "[]]"}, {"^", string.match, "a^b", "[b^]"},
  {"c", string.match, "abc", "[^a-b]"}, {"é", string.match, "né", "[\128-\255]+"},
  {"\0", string.match, "a\0b", "%z"}, {"a", string.match, "a\0b", "[^%z]+"},
  {{5, 7}, string.find, "hello world", "o w"}, {{4, 4}, string.find, "hello", "l", 4}, {{nil}, string.find, "hello", "xyz"},
  {{1, 7, "key", "val"}, string.find, "key=val", "(%w+)=(%w+)"}, {{6, 5}, string.find, "hello", "", 10},
  {{6, 5}, string.find, "hello", "", 6}, {{4, 4}, string.find, "hello", "l", -2}, {{3, 5}, string.match, "hello", "()ll()"},
  {{"heLLo", 2}, string.gsub, "hello", "l", "L"}, {{"heLlo", 1}, string.gsub, "hello", "l", "L", 1},
  {{"-h-e-l-l-o-", 6}, string.gsub, "hello", "", "-"}, {{"aabbcc", 3}, string.gsub, "abc", "%w", "%0%0"},
  {{"def abc", 1}, string.gsub, "abc def", "(%w+) (%w+)", "%2 %1"}, {{"xbc", 1}, string.gsub, "abc", "^a", "x"},
  {{"Lua is 5", 2}, string.gsub, "$name is $what", "%$(%w+)", {name = "Lua", what = 5}},
  {{"AbC", 3}, string.gsub, "abc", "%w", function(c) if c ~= "b" then return c:upper() end end},
  {{"100%%", 1}, string.gsub, "100%", "%%", "%%%%"}, {{"12x45", 1}, string.gsub, 12345, 3, "x"},
}
local found = {}
for k, v in ("a=1, b=2"):gmatch("(%w+)=(%w+)") do found[k] = v end
for _ in ("abc"):gmatch("") do found[#found + 1] = true end
expect.equal(found, {true, true, true, true, a = "1", b = "2"})
expect.errors{
  {function() ("x"):find("%") end, "libraries.lua:", "%"},
  {function() ("x"):find("(") end, "capture"},
  {function() ("x"):find("(x))") end, "capture"},
  {function() ("x"):find("[a") end, "missing ']'"},
  {function() ("x"):find("[%") end, "libraries.lua:"},
  {function() ("x"):find("%b") end, "libraries.lua:"},
  {function() ("x"):find("%bx") end, "libraries.lua:"},
  {function() ("x"):find("%f") end, "'['"},
  {function() ("x"):find("%1") end, "capture"},
  {function() ("x"):gsub("x", "%2") end, "invalid capture index"},
  {function() ("x"):gsub("x", true) end, "expected a string, a table or a function"},
  {function() ("x"):gsub("x", {x = {}}) end, "invalid replacement value (a table)"},
  {function() ("x"):gsub("(x)", function() error("mine") end) end, "mine"},
  {function() ("x"):gsub() end, "libraries.lua:"},
  {function() ("x"):gmatch() end, "string expected, got no value"},
}

-- Tables.
results{
  {"", table.concat, {}}, {"1,2,3", table.concat, {1, 2, 3}, ","}, {"2, 3", table.concat, {1, 2, 3}, ", ", 2, 3},
  {"", table.concat, {1, 2}, ",", 2, 1}, {"ab", table.concat, {"a", "b"}}, {10, table.maxn, {[10] = 1}},
  {0, table.maxn, {a = 1}}, {2, table.getn, {1, 2}}, {{}, table.remove, {}}, {1, table.remove, {1, 2, 3}, 1},
  {{2, 3}, unpack, {1, 2, 3}, 2}, {{}, unpack, {}},
}
expect.errors{
  {function() table.concat{1, {}, 3} end, "index 2"},
  {function() table.concat({1, 2}, ",", 1, 3) end, "index 3"},
  {function() table.sort{3, 1, "x"} end, "compare"},
  {function() table.sort{{}, {}} end, "compare"},
  {function() table.sort(7) end, "table expected"},
  {function() unpack({}, 1, 1e8) end, "too many"},
}
-- Sorting with any valid order, stable or not, ends with the elements in order.
for _ = 1, 50 do
  local list, count = {}, {}
  for i = 1, math.random(0, 40) do
    list[i] = math.random(10)
    count[list[i]] = (count[list[i]] or 0) + 1
  end
  table.sort(list, function(a, b) return a > b end)
  for i = 2, #list do expect.equal(list[i - 1] >= list[i], true) end
  for _, number in ipairs(list) do count[number] = count[number] - 1 end
  for _, left in pairs(count) do expect.equal(left, 0) end
end
-- Sorting with a contradictory order ends as well.
pcall(table.sort, {3, 1, 2, 5, 4}, function() return true end)

-- Mathematics.
local function close(a, b) return math.abs(a - b) < 1e-12 end
results{
  {3, math.floor, 3.7}, {-4, math.floor, -3.7}, {4, math.ceil, 3.2}, {5, math.abs, -5}, {3, math.max, 1, 3, 2},
  {1, math.min, 2, 1}, {1, math.fmod, 7, 3}, {-1, math.fmod, -7, 3}, {{3, 0.5}, math.modf, 3.5},
  {{-3, -0.5}, math.modf, -3.5}, {{0.5, 4}, math.frexp, 8}, {8, math.ldexp, 0.5, 4}, {8, math.pow, 2, 3},
  {4, math.sqrt, 16}, {2, math.log10, 100}, {1, math.exp, 0}, {0, math.log, 1}, {180, math.deg, math.pi},
}
expect.equal(close(math.sin(1) ^ 2 + math.cos(1) ^ 2, 1), true)
expect.equal(close(math.atan2(1, 1), math.pi / 4), true)
expect.equal(close(math.log(math.exp(2.5)), 2.5), true)
expect.equal(-7 % 3, 2)
expect.equal(7 % -3, -2)
expect.equal(2 ^ 10, 1024)
expect.equal(math.huge > 2 ^ 1023, true)
expect.errors{
  {function() math.floor("x") end, "number expected"},
  {function() math.max() end, "number expected"},
  {function() return 1 + {} end, "arithmetic"},
  {function() return 1 < "2" end, "compare"},
  {function() return #5 end, "length"},
}

-- Bit operations work on signed 32-bit integers.
results{
  {0, bit.band, 1, 2}, {3, bit.bor, 1, 2}, {3, bit.bxor, 1, 2}, {-1, bit.bnot, 0}, {2, bit.lshift, 1, 33},
  {-4, bit.arshift, -8, 1}, {2147483644, bit.rshift, -8, 1}, {-2147483648, bit.rol, 1, 31},
  {-2147483648, bit.ror, 1, 1}, {16777216, bit.bswap, 1}, {5, bit.tobit, 2 ^ 32 + 5}, {"000000ff", bit.tohex, 255},
  {"ff", bit.tohex, 255, 2}, {"FF", bit.tohex, 255, -2},
}
for _ = 1, 200 do
  local a, b = math.random(-2 ^ 31, 2 ^ 31 - 1), math.random(-2 ^ 31, 2 ^ 31 - 1)
  expect.equal(bit.bxor(bit.bxor(a, b), b), a)
  expect.equal(bit.bor(bit.band(a, b), bit.bxor(a, b)), bit.bor(a, b))
  expect.equal(bit.bnot(bit.band(a, b)), bit.bor(bit.bnot(a), bit.bnot(b)))
  local turn = math.random(0, 31)
  expect.equal(bit.ror(bit.rol(a, turn), turn), a)
  expect.equal(bit.bswap(bit.bswap(a)), a)
end

-- Conversion of text to numbers, and the basic functions.
results{
  {16, tonumber, "0x10"}, {2, tonumber, "10", 2}, {35, tonumber, "z", 36}, {nil, tonumber, ""}, {5, tonumber, " 5 "},
  {nil, tonumber, "1e"}, {nil, tonumber, "1 2"}, {nil, tonumber, {}}, {100, tonumber, "1e2"}, {nil, tonumber, "12", 2},
  {0, select, "#"}, {3, select, -1, 1, 2, 3}, {{2, 3}, select, 2, 1, 2, 3},
  {nil, next, {}}, {{1, "x"}, next, {"x"}}, {true, rawequal, 1, 1}, {false, rawequal, {}, {}}, 
  {"function", type, print}, {"userdata", type, strata.nn.ReLU}, {7, rawget, {x = 7}, "x"},
}
expect.errors{
  {function() tonumber("1", 99) end, "base out of range"},
  {function() select(0) end, "index out of range"},
  {function() next({}, "x") end, "invalid key"},
  {function() pairs(nil) end, "table expected"},
  {function() tostring() end, "libraries.lua:", "expected a value", "nothing"},
  {function() local t = {} t[nil] = 1 end, "index is nil"},
  {function() local t = {} t[0 / 0] = 1 end, "index is NaN"},
  {function() local x = undefined.field end, "undefined"},
  {function() undefined() end, "undefined"},
  {function() for _ = 1, "x" do end end, "'for' limit"},
}
