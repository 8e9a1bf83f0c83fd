-- The init of strata.layer: the names of parameters, in any nesting, and what init must not do.
local strata = require "strata"
local expect = require "expect"

local function layer(init)
  return strata.layer{name = "Own", init = init, forward = function(self, x) return x end}
end

-- A random nesting of tables with a given number of parameters, each with a shape of its own.
local function fill(self, table, depth)
  local elements = 0
  for i = 1, math.random(3) do
    local key = math.random(2) == 1 and i or "key" .. i
    if depth > 0 and math.random(2) == 1 then
      table[key] = {}
      elements = elements + fill(self, table[key], depth - 1)
    else
      local rows, columns = math.random(0, 4), math.random(4)
      table[key] = self:parameter{rows, columns, fill = i}
      elements = elements + rows * columns
    end
  end
  return elements
end
for _ = 1, 100 do
  local elements
  local made = layer(function(self) elements = fill(self, self, 3) end){}
  expect.equal(made.parameters, elements)
end

-- Other values may be stored beside parameters: any value, and the script's functions and tables.
local made = layer(function(self, size)
  self.size, self.text, self.yes, self.no = size, "text", true, nil
  self.helper = function() return size end
  self.table = {1, 2, {3}, [10] = "ten", x = {y = {}}}
  self.library = strata.nn.ReLU{}
  self.weight = self:parameter{size}
end){3}
expect.equal(made.parameters, 3)

-- A parameter has exactly one name.
expect.errors{
  {function() layer(function(self) self.a = self:parameter{2} self.b = self.a end){} end,
    "initial.lua:", "keeps one parameter as a and as b"},
  {function() layer(function(self) self.list = {self:parameter{2}} self.a = self.list[1] end){} end,
    "keeps one parameter as a and as list.0"},
  {function() layer(function(self) self:parameter{2} end){} end, "under a name", "self:parameter{...}"},
  {function() layer(function(self) local kept = self:parameter{2} end){} end, "under a name"},
  {function() layer(function(self) self.a = self:parameter{2} self.a = self:parameter{2} end){} end, "under a name"},
  {function() layer(function(self) self["a.b"] = self:parameter{2} end){} end, 'under the name "a.b"'},
  {function() layer(function(self) self["1"] = self:parameter{2} end){} end, 'under the name "1"'},
  {function() layer(function(self) self[true] = self:parameter{2} end){} end, "initial.lua:", "names or 1, 2, 3"},
  {function() layer(function(self) self[0] = self:parameter{2} end){} end, "the number 0"},
}

-- Sizes must be whole, not negative, and small enough for a machine.
expect.errors{
  {function() layer(function(self) self.a = self:parameter{-1} end){} end, "size -1"},
  {function() layer(function(self) self.a = self:parameter{2 ^ 50} end){} end, "fits no machine"},
  {function() layer(function(self) self.a = self:parameter{2 ^ 30, 2 ^ 30, 2 ^ 30} end){} end, "fits no machine"},
  {function() layer(function(self) self.a = self:parameter{1 / 0} end){} end, "the sizes", "inf"},
  {function() layer(function(self) self.a = self:parameter{0 / 0} end){} end, "the sizes", "nan"},
  {function() layer(function(self) self.a = self:parameter{{2}} end){} end, "the sizes", "a list of 1"},
  {function() layer(function(self) self.a = self:parameter{2, true} end){} end, "the sizes", "true"},
  {function() layer(function(self) self.a = self:parameter{2, init = 7} end){} end, "init", "the number 7"},
  {function() layer(function(self) self.a = self:parameter{2, fill = "one"} end){} end, "fill", '"one"'},
  {function() layer(function(self) self.a = self:parameter{2, inti = print} end){} end, '"inti"', "init"},
  {function() layer(function(self) self.a = self:parameter(2) end){} end, "initial.lua:", "the number 2"},
  {function() layer(function(self) self.a = self:parameter() end){} end, "initial.lua:", "nothing"},
}

-- self:parameter works only in init; kept for later, it throws.
local kept
layer(function(self) kept = self self.a = self:parameter{2} end){}
expect.error(function() kept:parameter{2} end, "initial.lua:", "belongs into the layer's init")

-- init may make layers of its own type, as deep as the stack allows; errors in it are its own.
local Nested
Nested = layer(function(self, depth)
  if depth > 0 then self.below = Nested{depth - 1} end
  self.weight = self:parameter{1}
end)
expect.equal(Nested{5}.parameters, 6)
expect.error(function() Nested{1e6} end, "nested too deeply")
expect.equal(Nested{5}.parameters, 6)
expect.errors{
  {function() layer(function(self) error("mine") end){} end, "initial.lua:", "mine"},
  {function() layer(function(self) error({}) end){} end},
  {function() layer(function(self) return self.missing.field end){} end, "initial.lua:", "missing"},
  {function() layer(function(self) coroutine.yield() end){} end, "yield"},
  {function() layer(function(self) self.parameter = 7 self.a = self:parameter{2} end){} end, "initial.lua:"},
}

-- Mistakes in the call of strata.layer itself.
local function declare(t, ...) return {function() strata.layer(t) end, "initial.lua:", ...} end
local function forward(self, x) return x end
expect.errors{
  declare(nil, "a table"), declare("Own", "a table", '"Own"'), declare({}, "name"), declare({name = "Own"}, "forward"),
  declare({name = "Own", forward = 7}, "forward must be a function", "the number 7"),
  declare({name = "Own", forward = forward, init = {}}, "init must be a function", "a list of 0"),
  declare({name = "Own", forwrad = forward}, '"forwrad"', 'did you mean "forward"?'),
  declare({"Own", forward = forward}, "name, init, reset and forward"), declare({name = {}, forward = forward}, "name"),
  declare({name = "function", forward = forward}, "name"), declare({forward = forward}, "name", "nothing"),
}
