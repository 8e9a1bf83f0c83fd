-- Random values that are converted to text and back, and the string functions that the sandbox replaces,
-- compared with the simplest implementations.
local strata = require "strata"
local expect = require "expect"
local json = strata.json

local function random_text()
  local letters = {}
  for i = 1, math.random(0, 6) do letters[i] = string.char(math.random(32, 126)) end
  return table.concat(letters)
end

local function random_number()
  local kind = math.random(3)
  if kind == 1 then return math.random(-1000000, 1000000) end
  if kind == 2 then return math.random(-1000, 1000) + 0.5 end
  return math.random(-100, 100) / 8
end

local function random_value(depth)
  local kind = math.random(depth > 0 and 5 or 3)
  if kind == 1 then return random_number() end
  if kind == 2 then return random_text() end
  if kind == 3 then return math.random() < 0.5 end
  local t = {}
  if kind == 4 then
    for i = 1, math.random(0, 4) do t[i] = random_value(depth - 1) end
  else
    for i = 1, math.random(4) do t["key" .. i .. random_text()] = random_value(depth - 1) end
  end
  return t
end

-- The printed form of a value is Lua code that gives the value again.
for _ = 1, 300 do
  local value = random_value(3)
  local text = type(value) == "string" and ("%q"):format(value) or tostring(value)
  local again = assert(load("return " .. text))()
  expect.equal(again, value)
end

-- All JSON values are kept: objects, empty ones and those whose names are digits, null, texts with any
-- characters, every finite number.
local letters = {"a", "1", "0", '"', "\\", "/", "\0", "\n", "\31", "\127", "é", "日", "😀", "\226\128\168"}
local function any_text()
  local text = {}
  for i = 1, math.random(0, 4) do text[i] = letters[math.random(#letters)] end
  return table.concat(text)
end
local function any_number()
  local kind = math.random(4)
  if kind == 1 then return math.random(-2, 2) end
  if kind == 2 then return math.random(-2 ^ 31, 2 ^ 31) * 2 ^ math.random(0, 22) end
  if kind == 3 then return (math.random() - 0.5) * 2 ^ math.random(-1000, 1000) end
  return -0.0
end
local function any_json(depth)
  local kind = math.random(depth > 0 and 7 or 5)
  if kind == 1 then return json.null end
  if kind == 2 then return math.random() < 0.5 end
  if kind == 3 then return any_number() end
  if kind == 4 then return any_text() end
  local t = {}
  if kind == 5 then return math.random() < 0.5 and t or json.object(t) end
  if kind == 6 then
    for i = 1, math.random(5) do t[i] = any_json(depth - 1) end
    return t
  end
  for _ = 1, math.random(0, 5) do t[any_text()] = any_json(depth - 1) end
  return json.object(t)
end
local function same(a, b)
  if type(a) ~= "table" or type(b) ~= "table" then
    return a == b and (a ~= 0 or 1 / a == 1 / b)
  end
  for key, value in pairs(a) do
    if b[key] == nil or not same(value, b[key]) then return false end
  end
  for key in pairs(b) do
    if a[key] == nil then return false end
  end
  return true
end
for i = 1, 1000 do
  local value = any_json(4)
  local text = json.encode(value)
  expect.equal(same(json.decode(text), value), true)
  expect.equal(same(json.decode(json.encode(value, i % 5)), value), true)
  expect.equal(json.encode(json.decode(text)), text)
end

-- What is no JSON.
for _, text in ipairs{"", " ", "nul", "truee", "01", "1.", ".5", "+1", "'x'", "{1:2}", "{\"a\"}", "[1,]",
                      "{\"a\":1,}", "[1 2]", "\"\\x\"", "\"\n\"", "NaN", "Infinity", "[", "]", "//1"} do
  expect.error(function() json.decode(text) end, "roundtrips.lua:")
end

-- Plain search, compared with a search at every position.
local function find_by_force(text, part, init)
  for first = init, #text - #part + 1 do
    if text:sub(first, first + #part - 1) == part then return first, first + #part - 1 end
  end
end
local function few_letters(most)
  local letters = {}
  for i = 1, math.random(0, most) do letters[i] = ("ab"):sub(math.random(2)):sub(1, 1) end
  return table.concat(letters)
end
for _ = 1, 500 do
  local text, part = few_letters(12), few_letters(3)
  local init = math.random(1, #text + 1)
  local first, last = find_by_force(text, part, init)
  expect.equal({text:find(part, init, true)}, {first, last})
  expect.equal({text:find(part, init)}, {first, last}) -- letters are not special
end

-- gsub of a plain text equals a split and a join; gmatch finds the parts that gsub replaces.
for _ = 1, 300 do
  local text, part = few_letters(12), few_letters(2)
  if part ~= "" then
    local pieces, at, count = {}, 1, 0
    while true do
      local first, last = find_by_force(text, part, at)
      if not first then break end
      pieces[#pieces + 1] = text:sub(at, first - 1)
      at, count = last + 1, count + 1
    end
    pieces[#pieces + 1] = text:sub(at)
    expect.equal({text:gsub(part, "<%0>")}, {table.concat(pieces, "<" .. part .. ">"), count})
    local met = 0
    for found in text:gmatch(part) do
      expect.equal(found, part)
      met = met + 1
    end
    expect.equal(met, count)
  end
end

-- A class and its upper-case complement together cover all bytes.
for _, class in ipairs{"a", "d", "l", "s", "u", "w", "x", "p", "c"} do
  for byte = 0, 255 do
    local char = string.char(byte)
    local yes, no = char:find("%" .. class) ~= nil, char:find("%" .. class:upper()) ~= nil
    expect.equal(yes ~= no, true)
    expect.equal(char:find("[%" .. class .. "]") ~= nil, yes)
    expect.equal(char:find("[^%" .. class .. "]") ~= nil, no)
  end
end

-- Repetitions of one letter, compared with counting.
for length = 0, 6 do
  local text = ("a"):rep(length)
  expect.equal(text:match("^a*$"), text)
  expect.equal(text:match("^a-$"), text)
  expect.equal(text:match("^a+$"), length > 0 and text or nil)
  expect.equal(text:match("^a?$"), length <= 1 and text or nil)
  expect.equal(select(2, text:gsub("a", "")), length)
  expect.equal(select(2, text:gsub("", "-")), length + 1)
  expect.equal(#text:gsub("a", "%0%0"), 2 * length)
end

-- %b, balanced brackets, compared with a counter.
for _ = 1, 300 do
  local marks = {}
  for i = 1, math.random(0, 10) do marks[i] = math.random() < 0.5 and "(" or ")" end
  local text, wanted = table.concat(marks), nil
  for first = 1, #text do
    local open = 0
    for last = first, #text do
      open = open + (text:sub(last, last) == "(" and 1 or -1)
      if open <= 0 then
        if open == 0 and not wanted then wanted = text:sub(first, last) end
        break
      end
    end
    if wanted then break end
  end
  expect.equal(text:match("%b()"), wanted)
end
