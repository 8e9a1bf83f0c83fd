-- strata.layer: the arguments of init, the names of parameters in any nesting, and what init must not do.
local strata = require "strata"
local expect = require "expect"
local nn = strata.nn

local function layer(init) -- a type of layer with this init
  return strata.layer{name = "Own", init = init, forward = function(self, x) return x end}
end

-- init gets the constructor's arguments: the positions, then a table of the names.
local got
local Seen = layer(function(self, ...) got = {n = select("#", ...), ...} end)
Seen{}
expect.equal(got, {n = 0})
Seen{1, "two", true}
expect.equal(got, {1, "two", true, n = 3})
Seen(1, "two")
expect.equal(got, {1, "two", n = 2})
Seen{4, dim = 5, list = {1, 2}}
expect.equal(got[1], 4)
expect.equal(got[2], {dim = 5, list = {1, 2}})
Seen{dim = 5, name = "named"}
expect.equal(got, {{dim = 5}, n = 1})

-- Parameters: their shapes are known at once, and they are counted in any nesting.
local shapes = {}
local Many = layer(function(self, dim)
  self.scalar = self:parameter{}
  self.row = self:parameter{dim}
  self.matrix = self:parameter{dim, 2 * dim, fill = 0.5}
  self.nothing = self:parameter{0, dim}
  self.inner = {weight = self:parameter{3}, list = {self:parameter{1}, {self:parameter{2, 2}}}}
  for _, name in ipairs{"scalar", "row", "matrix", "nothing"} do shapes[name] = self[name].shape end
  shapes.text = tostring(self.matrix)
end)
expect.equal(Many{5}.parameters, 1 + 5 + 50 + 0 + 3 + 1 + 4)
expect.equal(shapes.scalar, {})
expect.equal(shapes.row, {5})
expect.equal(shapes.matrix, {5, 10})
expect.equal(shapes.nothing, {0, 5})
expect.equal(shapes.text:find("5, 10", 1, true) ~= nil, true)

-- init runs once for each layer that is made, and each layer has its own self.
local runs, selves = 0, {}
local Counted = layer(function(self)
  runs = runs + 1
  selves[runs] = self
  self.weight = self:parameter{runs}
end)
local first, second = Counted{}, Counted{}
expect.equal(runs, 2)
expect.equal(selves[1] ~= selves[2], true)
expect.equal(first.parameters + second.parameters, 3)

-- Own layers may be used wherever built-in ones may.
local Scale = strata.layer{
  name = "Scale",
  init = function(self, dim) self.weight = self:parameter{dim, fill = 1} end,
  forward = function(self, x) return x * self.weight end,
}
expect.equal(nn.Sequential{nn.Linear{4, 4}, Scale{4}}.parameters, 24)
local job = strata.job{
  input = {shape = {4}},
  layers = {nn.Linear{4, 4}, Scale{4}, strata.times(2, function(i) return Scale{4, name = "s" .. i} end)},
}
expect.equal(#job.layers, 4)
expect.equal(job.layers[2].type, "Scale")
expect.equal(job.layers[3].name, "s0")
expect.equal(job.layers[4].name, "s1")
expect.equal(job.layers[2].parameters, 4)
expect.equal(tostring(job):find("Scale", 1, true) ~= nil, true)
expect.equal(Scale{4}.where:match("own_layers.lua:%d+$") ~= nil, true)

-- A table that contains self adds no second names; a parameter with two names is refused.
local Cyclic = layer(function(self)
  self.me = self
  self.child = {parent = self, weight = self:parameter{2}}
  self.child.again = self.child
  self.weight = self:parameter{3}
end)
expect.equal(Cyclic{}.parameters, 5)
expect.error(function()
  layer(function(self)
    self.a = {weight = self:parameter{2}}
    self.b = self.a
  end){}
end, "keeps one parameter as a.weight and as b.weight")
expect.equal(layer(function(self)
  self["a.b"], self["7"], self.attn = {1, {2}}, self, {weight = self:parameter{3}}
end){}.parameters, 3)

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
    "own_layers.lua:", "keeps one parameter as a and as b"},
  {function() layer(function(self) self.list = {self:parameter{2}} self.a = self.list[1] end){} end,
    "keeps one parameter as a and as list.0"},
  {function() layer(function(self) self:parameter{2} end){} end, "under a name", "self:parameter{...}"},
  {function() layer(function(self) local kept = self:parameter{2} end){} end, "under a name"},
  {function() layer(function(self) self.a = self:parameter{2} self.a = self:parameter{2} end){} end, "under a name"},
  {function() layer(function(self) self["a.b"] = self:parameter{2} end){} end, 'under the name "a.b"'},
  {function() layer(function(self) self["attn.weight"] = self:parameter{3} end){} end,
    'under the name "attn.weight"', "self.attn = {weight = ...} is parameter attn.weight"},
  {function() layer(function(self) self.b = {["a.c"] = {w = self:parameter{3}}} end){} end, 'under the name "a.c"'},
  {function() layer(function(self) self["0"] = self:parameter{3} end){} end, 'under the name "0"', "self[1] = ..."},
  {function() layer(function(self) self[""] = self:parameter{3} end){} end, "under a name"},
  {function() layer(function(self) self.a = self:parameter{3} self.a = nil end){} end, "under a name"},
  {function() layer(function(self) self["1"] = self:parameter{2} end){} end, 'under the name "1"'},
  {function() layer(function(self) self[true] = self:parameter{2} end){} end, "own_layers.lua:", "names or 1, 2, 3"},
  {function() layer(function(self) self[0] = self:parameter{2} end){} end, "the number 0"},
}

-- Sizes must be whole, not negative, and small enough for a machine.
expect.errors{
  {function() layer(function(self) self.a = self:parameter{-1} end){} end, "size -1"},
  {function() layer(function(self) self.a = self:parameter{2 ^ 50} end){} end, "fits no machine"},
  {function() layer(function(self) self.a = self:parameter{2 ^ 30, 2 ^ 30, 2 ^ 30} end){} end, "fits no machine"},
  {function() layer(function(self) self.a = self:parameter{"x"} end){} end, "the sizes", '"x"'},
  {function() layer(function(self) self.a = self:parameter{1.5} end){} end, "the sizes", "1.5"},
  {function() layer(function(self) self.a = self:parameter{1 / 0} end){} end, "the sizes", "inf"},
  {function() layer(function(self) self.a = self:parameter{0 / 0} end){} end, "the sizes", "nan"},
  {function() layer(function(self) self.a = self:parameter{{2}} end){} end, "the sizes", "a list of 1"},
  {function() layer(function(self) self.a = self:parameter{2, true} end){} end, "the sizes", "true"},
  {function() layer(function(self) self.a = self:parameter{2, init = 7} end){} end, "init", "the number 7"},
  {function() layer(function(self) self.a = self:parameter{2, fill = "one"} end){} end, "fill", '"one"'},
  {function() layer(function(self) self.a = self:parameter{3, fill = 1, fil = 1} end){} end, '"fil"', '"fill"'},
  {function() layer(function(self) self.a = self:parameter{2, inti = print} end){} end, '"inti"', "init"},
  {function() layer(function(self) self.a = self:parameter(2) end){} end, "own_layers.lua:", "the number 2"},
  {function() layer(function(self) self.a = self:parameter() end){} end, "own_layers.lua:", "nothing"},
}

-- self:parameter works only in init; kept for later, it throws.
local kept
layer(function(self) kept = self self.a = self:parameter{2} end){}
expect.error(function() kept:parameter{2} end, "own_layers.lua:", "belongs into the layer's init")

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
  {function() layer(function(self) error("mine") end){} end, "own_layers.lua:", "mine"},
  {function() layer(function(self) error({}) end){} end},
  {function() layer(function(self) return self.missing.field end){} end, "own_layers.lua:", "missing"},
  {function() layer(function(self) coroutine.yield() end){} end, "yield"},
  {function() layer(function(self) self.a = self.parameter{3} end){} end, "own_layers.lua:"},
  {function() layer(function(self) self.a = self:parametr{3} end){} end, "own_layers.lua:"},
  {function() layer(function(self) self.a = self:parameter{3} return self.a:add(1) end){} end, 'has no "add"'},
  {function() layer(function(self) setmetatable(self, {}) end){} end, "protected"},
  {function() Scale{function() end} end, "own_layers.lua:"},
  {function() layer(function(self) self.parameter = 7 self.a = self:parameter{2} end){} end, "own_layers.lua:"},
}

-- Mistakes in the call of strata.layer itself.
local function declare(t, ...) return {function() strata.layer(t) end, "own_layers.lua:", ...} end
local function forward(self, x) return x end
expect.errors{
  declare(nil, "a table"), declare("Own", "a table", '"Own"'), declare({}, "name"), declare({name = "Own"}, "forward"),
  declare({name = "Own", forward = 7}, "forward must be a function", "the number 7"),
  declare({name = "Own", forward = forward, init = {}}, "init must be a function", "a list of 0"),
  declare({name = "Own", forwrad = forward}, '"forwrad"', 'did you mean "forward"?'),
  declare({"Own", forward = forward}, "name, init, reset and forward"), declare({name = {}, forward = forward}, "name"),
  declare({name = "function", forward = forward}, "name"), declare({forward = forward}, "name", "nothing"),
}
