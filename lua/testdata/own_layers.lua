-- strata.layer: the arguments of init, what it may declare, and how parameters are counted and divided.
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

-- A layer without init has no parameters.
expect.equal(strata.layer{name = "Plain", forward = function(self, x) return x end}{}.parameters, 0)

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

-- Mistakes.
expect.error(function() layer(function(self) self.a = self:parameter{"x"} end){} end, "the sizes", '"x"')
expect.error(function() layer(function(self) self.a = self:parameter{1.5} end){} end, "the sizes", "1.5")
expect.error(function() layer(function(self) self.a = self:parameter{3, fill = "x"} end){} end, "fill")
expect.error(function() layer(function(self) self.a = self:parameter{3, fill = 1, fil = 1} end){} end,
  '"fil"', '"fill"')
expect.error(function() layer(function(self) self.a = self.parameter{3} end){} end, "own_layers.lua:")
expect.error(function() layer(function(self) self.a = self:parameter{3} self.a = nil end){} end,
  "under a name")
expect.error(function() layer(function(self) self["attn.weight"] = self:parameter{3} end){} end,
  'under the name "attn.weight"', "self.attn = {weight = ...} is parameter attn.weight")
expect.error(function() layer(function(self) self.b = {["a.c"] = {w = self:parameter{3}}} end){} end, 'under the name "a.c"')
expect.error(function() layer(function(self) self["0"] = self:parameter{3} end){} end, 'under the name "0"', "self[1] = ...")
expect.equal(layer(function(self)
  self["a.b"], self["7"], self.attn = {1, {2}}, self, {weight = self:parameter{3}}
end){}.parameters, 3)
expect.error(function() layer(function(self) self.a = self:parametr{3} end){} end, "own_layers.lua:")
expect.error(function() layer(function(self) local a = nil + 1 end){} end, "own_layers.lua:", "arithmetic")
expect.error(function() layer(function(self) setmetatable(self, {}) end){} end, "protected")
expect.error(function() strata.layer{name = 7, forward = print} end, "name")
expect.error(function() strata.layer{name = "", forward = print} end, "name")
expect.error(function() strata.layer(7) end, "a table")
expect.error(function() Scale{function() end} end, "own_layers.lua:")
