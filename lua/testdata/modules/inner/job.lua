-- A job in its own folder: it requires and reads files beside itself.
local strata = require "strata"
local size = require "size"
local opt = strata.options{depth = 2}
return strata.job{
  name = strata.read("name.txt"),
  input = {shape = {size}},
  layers = strata.times(opt.depth, function() return strata.nn.Linear{size, size} end),
}
