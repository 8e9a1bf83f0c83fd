-- print() and tostring(): every kind of value, long and nested ones, and objects of the library.
local strata = require "strata"
local expect = require "expect"
local nn = strata.nn

-- Numbers are printed as in Lua, without a dot if they are whole.
for _, case in ipairs{
  {0, "0"}, {-0.0, "-0"}, {1e3, "1000"}, {0.1, "0.1"}, {1 / 3, "0.33333333333333"}, {1e14, "1e+14"},
  {99999999999999, "99999999999999"}, {123456.789, "123456.789"}, {1e-5, "1e-05"}, {1 / 0, "inf"}, {-1 / 0, "-inf"},
  {2 ^ 31, "2147483648"}, {-2 ^ 31, "-2147483648"},
} do
  expect.equal(tostring(case[1]), case[2])
  expect.equal(tostring{case[1]}, "{" .. case[2] .. "}")
end
expect.equal(tostring(0 / 0):find("nan", 1, true) ~= nil, true)

-- Texts are quoted only inside tables; quotes, newlines and backslashes are escaped there.
for text, quoted in pairs{
  ["a"] = '"a"', [""] = '""', ['say "x"'] = '"say \\"x\\""', ["a\\b"] = '"a\\\\b"', ["a\nb"] = '"a\\nb"', ["é"] = '"é"',
} do
  expect.equal(tostring(text), text)
  expect.equal(tostring{text}, "{" .. quoted .. "}")
  expect.equal(load("return " .. tostring{text})()[1], text)
end

-- Keys: the list first, then the others sorted by their text; names are bare, others in brackets.
for _, case in ipairs{
  {{}, "{}"}, {{nil}, "{}"}, {{1, 2, nil, 4}, "{1, 2, nil, 4}"}, {{z = 1, a = 2}, "{a=2, z=1}"},
  {{1, x = 2}, "{1, x=2}"}, {{[0] = "zero"}, '{[0]="zero"}'}, {{[-1] = 1, [0.5] = 2}, "{[-1]=1, [0.5]=2}"},
  {{["a b"] = 1, ["a-b"] = 2}, '{["a b"]=1, ["a-b"]=2}'}, {{["1"] = 1}, '{["1"]=1}'}, {{["if"] = 1}, '{["if"]=1}'},
  {{[true] = 1, [false] = 0}, "{[false]=0, [true]=1}"}, {{{}, {{}}}, "{{}, {{}}}"}, {{_x1 = {}}, "{_x1={}}"},
  {{[{1}] = 2}, "{[{1}]=2}"}, {{["é"] = 1}, '{["é"]=1}'},
} do
  expect.equal(tostring(case[1]), case[2])
end

-- A table whose text has up to 100 characters is on one line; a longer one has a line per entry, indented by depth.
local short, long = {("x"):rep(95)}, {("x"):rep(97)}
expect.equal(tostring(short):find("\n"), nil)
expect.equal(tostring(long), '{\n  "' .. long[1] .. '",\n}')
expect.equal(tostring{inner = long}, '{\n  inner={\n    "' .. long[1] .. '",\n  },\n}')
for _, length in ipairs{0, 1, 199, 200, 201, 5000} do
  local list = {}
  for i = 1, length do list[i] = 0 end
  local _, zeros = tostring(list):gsub("%f[%d]0%f[%D]", "")
  expect.equal(zeros >= math.min(length, 200), true)
  expect.equal(tostring(list):find((length - 200) .. " more", 1, true) ~= nil, length > 200)
end
local numbers = {}
for i = 1, 40 do numbers[i] = i * 10 end
local rows = {}
for row in tostring(numbers):gmatch("[^\n]+") do rows[#rows + 1] = row end
expect.equal(#rows, 5) -- braces, and three rows of numbers in columns
expect.equal(rows[2]:sub(1, 12), "   10,  20, ")
expect.equal(rows[2]:find(",", 1, true), rows[3]:find(",", 1, true))
local named = {}
for i = 1, 1000 do named["k" .. i] = i end
expect.equal(select(2, tostring(named):gsub("=", "")), 200)

-- Printing a table that contains itself ends.
local ring = {}
ring.again = {ring}
expect.equal(tostring(ring), "{again={{...}}}")
local twins = {}
twins.a, twins.b = {twins}, {twins}
expect.equal(tostring(twins), "{a={{...}}, b={{...}}}")

-- A function is printed with its name if its line shows one.
local function local_one() end
global_one = function(x) return x end
local t = {method = function() end}
function t.named(x) return x end
function t:self_named() end
for f, name in pairs{[local_one] = "local_one ", [global_one] = "global_one ", [t.named] = "t.named ", [t.self_named] = "t:self_named "} do
  expect.equal(tostring(f):find("function " .. name .. "(", 1, true), 1)
  expect.equal(tostring(f):match("printing.lua:%d+%)$") ~= nil, true)
end
global_one = nil
expect.equal(tostring(load("return 1")):find("function", 1, true), 1)
expect.equal(tostring(string.upper), "function (a built-in function)")
expect.equal(tostring(coroutine.create(print)):find("thread: ", 1, true), 1)

-- Objects are printed in the form in which scripts write them.
for _, case in ipairs{
  {nn.ReLU{}, "ReLU()"}, {nn.Linear{2, 3}, "Linear(2, 3"}, {nn.Linear{2, 3, bias = false}, "bias=false"},
  {nn.Conv2d{3, 4, 5, stride = 2}, "Conv2d(3, 4"},
  {nn.Sequential{nn.ReLU{}, nn.Tanh{}}, "ReLU()"}, {nn.Dropout{0.25}, "0.25"}, {strata.cut(), "strata.cut()"},
  {nn.Linear, "in_features", "{nn.Linear}"}, {nn.CrossEntropyLoss{}, "CrossEntropyLoss"}, {strata.topology(6), "(6 ranks)"},
} do
  local text = tostring(case[1])
  if not text:find(case[2], 1, true) then error(text .. " lacks " .. case[2]) end
  expect.equal(tostring{case[1]}:find(case[3] or case[2], 1, true) ~= nil, true)
end

-- A job and a plan: the content of their text, which has no newline at its end.
local job = strata.job{
  name = "tiny", input = {shape = {4}}, layers = {nn.Linear{4, 1000}, nn.ReLU{}, nn.Linear{1000, 2}},
  loss = nn.CrossEntropyLoss{}, batch = {micro_batches = 1, micro_batch_size = 2}, optimizer = {"adam", lr = 0.5},
  device = "cpu",
}
local function lacks(text, ...)
  for _, part in ipairs{...} do
    if not text:find(part, 1, true) then return part .. " in:\n" .. text end
  end
end
expect.equal(lacks(tostring(job), 'job "tiny" at ', "printing.lua:", "Linear(4, 1000", "5,000", "2,002", "adam", "0.5",
  "CrossEntropyLoss"), nil)
expect.equal(lacks(tostring(job:plan{pipe = 2}), "Linear", "(2, 1000)", "5,000", "7,002 parameters", "cuts 0, 1, 3",
  "1 micro-batch of 2"), nil)
expect.equal(lacks(tostring(job:plan{micro_batches = 3}), "3 micro-batches of 2"), nil)
for _, object in ipairs{job, job:plan{}, job:plan{}.program, strata.topology(4)} do
  expect.equal(tostring(object):sub(-1) ~= "\n", true)
end
