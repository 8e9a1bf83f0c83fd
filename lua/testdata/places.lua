-- The place of an error is the file and line of the script that made the mistake, even if Lua functions
-- and the library lie in between.
local strata = require "strata"
local expect = require "expect"
local nn = strata.nn

-- The numbers of the lines that are marked by comments below.
local at, count = {}, 0
for line in strata.read("places.lua"):gmatch("([^\n]*)\n") do
  count = count + 1
  local number = line:match("%-%- line (%d+)$")
  if number then at[tonumber(number)] = count end
end

-- The line in this file that the error's message names.
local function line_of(f, ...)
  local ok, message = pcall(f, ...)
  expect.equal(ok, false)
  return tonumber(message:match("places.lua:(%d+):"))
end

local function direct()
  local x = 1
  error("mine") -- line 1
end
expect.equal(line_of(direct), at[1])

local function arithmetic()
  local t = {}

  return t.a.b -- line 2
end
expect.equal(line_of(arithmetic), at[2])

local function in_the_library()
  return {
    nn.Linear{1, 2},
    nn.Linear{1}, -- line 3
  }
end
expect.equal(line_of(in_the_library), at[3])

-- In functions called by the library, the place is that of the inner mistake.
expect.equal(line_of(function()
  strata.times(2, function()
    nn.Linear{1} -- line 4
  end)
end), at[4])
expect.equal(line_of(function()
  ("x"):gsub("x", function()
    error("inside gsub") -- line 5
  end)
end), at[5])
expect.equal(line_of(function()
  table.sort({3, 2, 1}, function(a, b)
    return a < b.x -- line 6
  end)
end), at[6])
expect.equal(line_of(function()
  tostring(setmetatable({}, {__tostring = function()
    nn.Lineer() -- line 7
  end}))
end), at[7])
expect.equal(line_of(function()
  load(function()
    error("while loading") -- line 8
  end)
end), at[8])
expect.equal(line_of(function()
  for _ in coroutine.wrap(function()
    nn.Linear{"x", 2} -- line 9
  end) do end
end), at[9])
expect.equal(line_of(function()
  strata.layer{name = "Own", forward = print, init = function(self)
    self.a = self:parameter{-1} -- line 10
  end}{}
end), at[10])
expect.equal(line_of(function()
  strata.job{input = {shape = {4}}, layers = {nn.ReLU{}}, device = "cpu",
    batch = {micro_batches = 1, micro_batch_size = 1}}:plan{partition = function()
    error("in the partition") -- line 11
  end}
end), at[11])

-- After such a call, the place is the caller's again.
expect.equal(line_of(function()
  strata.times(2, function(i) return i end)
  local sorted = {2, 1}
  table.sort(sorted, function(a, b) return a < b end)
  nn.Linear{1} -- line 12
end), at[12])
expect.equal(line_of(function()
  pcall(nn.Linear, {1})
  coroutine.wrap(function() coroutine.yield() end)()
  strata.topology(0) -- line 13
end), at[13])
expect.equal(line_of(function()
  local job = strata.job{input = {shape = {4}}, layers = {nn.ReLU{}}, device = "cpu",
    batch = {micro_batches = 1, micro_batch_size = 1}}
  local function whole(layers)
    return {0, #layers}
  end
  job:plan{partition = whole} strata.topology(0) -- line 20
end), at[20])

-- A mistake in a metamethod, in an iterator, and in an argument of a call.
expect.equal(line_of(function()
  local v = setmetatable({}, {__add = function()
    nn.Linear{1} -- line 14
  end})
  return v + v
end), at[14])
expect.equal(line_of(function()
  for _ in function()
    strata.json.decode("{") -- line 15
  end do end
end), at[15])
expect.equal(line_of(function()
  nn.Sequential{
    nn.ReLU{},
    nn.Linear{1}, -- line 16
    nn.ReLU{},
  }
end), at[16])

-- error() with a chosen level, and without a place.
local function check(x) if not x then error("must be given", 2) end end
expect.equal(line_of(function()
  check(true)
  check(false) -- line 17
end), at[17])
expect.equal(select(2, pcall(error, "bare", 0)), "bare")
expect.equal(select(2, pcall(function() error("a: 1: b", 0) end)), "a: 1: b")

-- Errors in texts given to load() have their place in the text.
local loaded = load("\n\nerror('there')", "=(mine)")
expect.equal(select(2, pcall(loaded)):find(":3: there", 1, true) ~= nil, true)
expect.equal(select(2, pcall(load("local strata = ...\n\nstrata.nn.Linear{1}"), strata)):find(":3: ", 1, true) ~= nil, true)

-- A layer knows the line where it was made; the error for a shape that does not fit names it.
local first = nn.Linear{4, 5} -- line 18
local second = nn.Linear{6, 7} -- line 19
expect.equal(tonumber(first.where:match(":(%d+)$")), at[18])
local ok, message = pcall(function()
  strata.job{input = {shape = {4}}, layers = {first, second}, device = "cpu",
    batch = {micro_batches = 1, micro_batch_size = 1}}:plan{}
end)
expect.equal(ok, false)
expect.equal(message:find("Linear(6, 7", 1, true) ~= nil, true)
expect.equal(message:find("places.lua:" .. at[19], 1, true) ~= nil, true)
