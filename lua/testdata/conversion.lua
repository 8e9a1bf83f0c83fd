-- Conversion of Lua values to data and back, through JSON and through the arguments of layers: what is
-- kept, what becomes another kind of value, and what is refused.
local strata = require "strata"
local expect = require "expect"
local json, nn = strata.json, strata.nn

-- Whole numbers are integers up to 2^53, beyond which doubles skip integers.
for _, case in ipairs{
  {0, "0"}, {-0.0, "-0.0"}, {1, "1"}, {-1, "-1"}, {0.5, "0.5"}, {1e15, "1000000000000000"},
  {2 ^ 31, "2147483648"}, {-2 ^ 31, "-2147483648"}, {2 ^ 53, "9007199254740992"},
  {-2 ^ 53, "-9007199254740992"}, {2 ^ 53 + 2, "9007199254740994.0"},
  {2 ^ 63, "9223372036854775808.0"}, {1e300, "1e+300"}, {5e-324, "5e-324"},
  {1.7976931348623157e308, "1.7976931348623157e+308"}, {1 / 3, "0.3333333333333333"},
} do
  expect.equal(json.encode(case[1]), case[2])
  expect.equal(json.encode{case[1]}, "[" .. case[2] .. "]")
end

-- A number that is written and read again is the same to the last bit.
for _ = 1, 500 do
  local number = (math.random() - 0.5) * 2 ^ math.random(-300, 300)
  expect.equal(json.decode(json.encode(number)) == number, true)
  local whole = math.random(-2 ^ 31, 2 ^ 31) * 2 ^ math.random(0, 22)
  expect.equal(json.decode(json.encode(whole)) == whole, true)
end
for _, case in ipairs{
  {"0", 0}, {"-0", 0}, {"1e3", 1000}, {"1E-2", 0.01}, {"1.50", 1.5}, {"9007199254740992", 2 ^ 53},
  {"-9007199254740992", -2 ^ 53}, {"9007199254740993.0", 2 ^ 53}, {"1e30", 1e30}, {"-0.0", 0}, {"1e-400", 0},
} do
  expect.equal(json.decode(case[1]) == case[2], true)
end
expect.equal(1 / json.decode(json.encode(-0.0)) == -1 / 0, true)
expect.error(function() json.decode "1e400" end, "not valid JSON", "1e400")

-- Integers that a Lua number cannot represent exactly are refused everywhere.
for _, text in ipairs{
  "9007199254740993", "-9007199254740993", "9223372036854775807", "-9223372036854775808", "9223372036854775808",
  "18446744073709551615", "18446744073709551616", "-9223372036854775809", "123456789012345678901234567890",
} do
  for _, whole in ipairs{text, "[0, " .. text .. "]", '{"a": {"b": ' .. text .. "}}"} do
    expect.error(function() json.decode(whole) end, "conversion.lua:", "the integer " .. text .. " is beyond 2^53")
  end
end

-- Numbers that JSON cannot represent are refused too.
expect.errors{
  {function() json.encode(0 / 0) end, "the value: JSON has no number for"},
  {function() json.encode{a = {1, 1 / 0}} end, "the value.a[2]: JSON has no number for inf"},
  {function() json.encode{[3] = -1 / 0} end, "the value[3]: JSON has no number for -inf"},
}

-- Texts keep their bytes if they are UTF-8; other bytes are refused.
for _, text in ipairs{"", "a", "a\0b", "\1\2\31", "\"\\/", "\127", "é", "日本語", "😀", "\r\n\t", ("x"):rep(10000)} do
  expect.equal(json.decode(json.encode(text)) == text, true)
  expect.equal(json.decode(json.encode{[text] = 1})[text], 1)
end
expect.errors{
  {function() json.encode "\255\254" end, "the value: JSON holds text in UTF-8", "index 0: 0xFF"},
  {function() json.encode{a = {"ok", "b\128"}} end, "the value.a[2]:", "index 1: 0x80"},
  {function() json.encode{["\192\175"] = 1} end, "the value:", "index 0: 0xC0"},
  {function() json.encode "\195" end, "incomplete UTF-8"},
  {function() json.encode "\237\160\128" end, "UTF-8"}, -- half of a surrogate pair
}
expect.equal(json.encode "\0", '"\\u0000"')
expect.equal(json.encode "a\nb", '"a\\nb"')
expect.equal(json.decode [["\u0041\u00e9\u65e5\ud83d\ude00"]], "Aé日😀")
expect.error(function() json.decode [["\ud83d"]] end, "surrogate")
expect.error(function() json.decode '"\255"' end, "UTF-8")

-- Lists stay lists, and holes become null; names stay names, even those that consist of digits.
for _, case in ipairs{
  {{}, "[]"}, {{{}}, "[[]]"}, {{1, nil, 3}, "[1,null,3]"}, {{nil, nil, 3}, "[null,null,3]"},
  {{a = {}}, '{"a":[]}'}, {{b = 1, a = 2, B = 3}, '{"B":3,"a":2,"b":1}'}, {{[" "] = 1, [""] = 2}, '{"":2," ":1}'},
  {{["1"] = "text"}, '{"1":"text"}'}, {{true, false}, "[true,false]"}, {{["1"] = 1, ["2"] = 2}, '{"1":1,"2":2}'},
  {{[1.0] = 5}, "[5]"}, {{[2 ^ 0] = 5}, "[5]"}, {json.object{}, "{}"}, {{json.object{}, {}}, "[{},[]]"},
  {json.object{a = 1}, '{"a":1}'}, {json.null, "null"}, {{json.null}, "[null]"}, {nil, "null"},
} do
  expect.equal(json.encode(case[1]), case[2])
end
for _, text in ipairs{
  "{}", "[]", "null", '{"1":["a"]}', '{"0":1,"1":2}', '{"-1":2,"01":1,"1":3,"1000000000":4,"1x":5}', '{"a":{}}',
  "[{},[],[{}]]", "[null,2,null]", "[null,null]", '{"a":null,"b":1}', '{"a":[null]}', '{"":{"":[]}}', "true", '""',
} do
  expect.equal(json.encode(json.decode(text)), text)
end
local names = json.decode '{"0": 1, "1": ["a"], "2": null}'
expect.equal(names["0"], 1)
expect.equal(names["1"], {"a"})
expect.equal(names[1], nil)
expect.equal(names["2"] == json.null, true)
expect.equal(#json.decode "[null, 2, null]", 3)
expect.equal(json.decode "[null, 2, null]"[3] == json.null, true)
expect.equal(json.decode "null" == json.null, true)
expect.equal(tostring(json.null), "null")
expect.equal(json.decode " true ", true)
local emptied = json.decode '{"a": 1}'
emptied.a = nil
expect.equal(json.encode(emptied), "{}")
emptied[1] = 2
local filled = json.object{}
filled.a = 1
expect.equal(json.encode(filled), '{"a":1}')
expect.errors{
  {function() json.encode{"sgd", 7, lr = 0.1} end, "the value: a table with names has positions too"},
  {function() json.encode{a = {[2] = "x", b = 1}} end, "the value.a: a table with names has positions too"},
  {function() json.encode(emptied) end, "with the mark of an object has positions"},
  {function() json.object{1, 2} end, "a table with names, or an empty one", "a list of 2"},
  {function() json.object() end, "a table with names", "nothing"},
  {function() json.decode '{"a": 1, "b": 2, "a": 3}' end, 'line 1, column 20: the key "a" comes twice'},
  {function() json.decode '[{"": {"x": 1, "\\u0078": 2}}]' end, 'the key "x" comes twice'},
  {function() json.null.x = 1 end, "cannot be changed"},
}
-- For the library a null is the same as nil, and a table marked as an object is an ordinary table.
expect.equal(tostring(nn.Linear(json.decode '{"in_features": 2, "out_features": 3, "bias": null}')),
  tostring(nn.Linear{2, 3}))
expect.equal(strata.schedule("gpipe", json.decode "{}").ranks, 1)

-- A table may occur in several places, but not within itself.
local shared = {1}
expect.equal(json.encode{shared, shared, {shared}}, "[[1],[1],[[1]]]")
local function ring(length)
  local first = {}
  local last = first
  for _ = 2, length do
    last.next = {}
    last = last.next
  end
  last.next = first
  return first
end
for _, length in ipairs{1, 2, 7, 101} do
  expect.error(function() json.encode(ring(length)) end, "conversion.lua:", "holds itself")
end
local function nest(depth)
  local t = {}
  for _ = 2, depth do t = {t} end
  return t
end
for _, brackets in ipairs{{"[", "1", "]"}, {'{"a":', "null", "}"}} do
  local function nested(depth) return brackets[1]:rep(depth) .. brackets[2] .. brackets[3]:rep(depth) end
  expect.equal(json.encode(json.decode(nested(1000))), nested(1000))
  expect.error(function() json.decode(nested(1001)) end, "nested more than 1000 levels")
end
expect.error(function() json.encode(nest(1002)) end, "nested too deeply")
expect.error(function() json.decode(("["):rep(1e6)) end, "nested")

-- A function is converted to the place where it was written, a topology to its sizes.
local function f() return 1 end
expect.equal(json.decode(json.encode(f))["function"]:match("conversion.lua:%d+$") ~= nil, true)
expect.equal(json.encode(strata.topology{pipe = 2, data = 3}), '{"data":3,"pipe":2}')

expect.errors{
  {function() json.encode() end, "expected a value", "nothing"},
  {function() json.encode{[0] = 1} end, "names or 1, 2, 3", "the number 0"},
  {function() json.encode{[-1] = 1} end, "the number -1"},
  {function() json.encode{[1.5] = 1} end, "the number 1.5"},
  {function() json.encode{[0 / 0 == 0 and 1 or 1e9] = 1} end, "the number 1"},
  {function() json.encode{[true] = 1} end, "true"},
  {function() json.encode{[{}] = 1} end, "a list of 0"},
  {function() json.encode{[print] = 1} end, "function"},
  {function() json.decode "[1]\0[2]" end, "line 1, column 4: a zero byte"},
  {function() json.decode "[1]\0" end, "line 1, column 4: a zero byte"},
  {function() json.encode{1, [1000] = 2} end, "a list of 1000 has only 2 elements"},
  {function() json.encode{[1e8] = 2} end, "a list of 100000000 has only 1 element"},
  {function() json.encode{a = {b = {c = coroutine.create(f)}}} end, "the value.a.b.c", "thread"},
  {function() json.encode{a = nn.ReLU{}} end, "the value.a", "JSON has no form for a layer"},
  {function() json.encode{a = nn.ReLU} end, "the value.a", "layer type"},
  {function() json.encode(strata.cut()) end, "the value", "a cut"},
  {function() json.encode(strata.schedule("gpipe")) end, "the value", "a program"},
  {function() json.encode({}, "wide") end, "an indent", '"wide"'},
  {function() json.encode({}, 0.5) end, "an indent", "0.5"},
  {function() json.encode({}, 17) end, "at most 16"},
  {function() json.decode(7) end, "JSON text", "the number 7"},
  {function() json.decode {} end, "JSON text", "a list of 0"},
  {function() json.decode "[1,\n2,\n!]" end, "line 3"},
}
expect.equal(json.encode({1, {}}, 0), "[\n1,\n[]\n]")
expect.equal(json.encode({a = {1}}, 1), '{\n "a": [\n  1\n ]\n}')
expect.equal(json.encode({1}, -5), "[1]")

-- Metatables are not converted, and none of their functions runs.
local ran = false
local odd = setmetatable({1}, {__index = function() ran = true return 2 end, __len = function() ran = true return 9 end})
expect.equal(json.encode(odd), "[1]")
expect.equal(ran, false)

-- The arguments of a layer can be read as they were given.
local Own = strata.layer{name = "Own", init = function(self, ...) self.got = {...} seen = {...} end,
  forward = function(self, x) return x end}
for _, argument in ipairs{1, 0.5, "text", true, 2 ^ 60, {1, {2, "x"}}, {a = {b = {c = 1}}}} do
  Own{argument, last = 1}
  expect.equal(seen[1], argument)
  expect.equal(seen[2], {last = 1})
end
Own{0 / 0, 1 / 0}
expect.equal(seen[1] ~= seen[1] and seen[2] == 1 / 0, true)
Own{callback = f}
expect.equal(seen[1].callback == f, true)
Own{false, nil, 3}
expect.equal(seen[1], false)
expect.equal(seen[2], nil)
expect.equal(seen[3], 3)
seen = nil
