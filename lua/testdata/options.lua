-- strata.options without a command line: the defaults are checked by the same rules as given options.
local strata = require "strata"
local expect = require "expect"

for _, case in ipairs{
  {}, {width = 4}, {width = 0.5}, {word = "x", empty = ""}, {fast = true, slow = false}, {sizes = {1, 2, 3}},
  {names = {"a", "b"}, none = {}}, {hidden_size = 3}, {layers = 8}, {big = 2 ^ 53, small = -1e-300},
} do
  expect.equal(strata.options(case), case)
end

-- The result is a new table.
local defaults = {width = 4, sizes = {1}}
local options = strata.options(defaults)
options.width, options.sizes[1], options.more = 5, 2, true
expect.equal(defaults, {width = 4, sizes = {1}})
expect.equal(rawget(options, "missing"), nil)

expect.errors{
  {function() return options.widht end, "options.lua:", 'no option "widht"', 'did you mean "width"?'},
  {function() strata.options() end, "options.lua:", "strata.options{name=default, ...}", "nothing"},
  {function() strata.options("width") end, "strata.options{name=default, ...}", '"width"'},
  {function() strata.options(strata.nn.ReLU{}) end, "strata.options{name=default, ...}", "a layer"},
  {function() strata.options{"width"} end, "options.lua:", "names with defaults", '"width"', "without a name"},
  {function() strata.options{7, width = 1} end, "names with defaults", "the number 7"},
  {function() strata.options{steps = 1} end, "options.lua:", '"steps" is a flag of the job'},
  {function() strata.options{pipe = 1} end, '"pipe" is a flag of the job'},
  {function() strata.options{["micro-batches"] = 1} end, "is a flag of the job"},
  {function() strata.options{f = print} end, "options.lua:", 'the default of "f"', "a function"},
  {function() strata.options{f = function() end} end, 'the default of "f"', "options.lua:"},
  {function() strata.options{t = {a = 1}} end, 'the default of "t"'},
  {function() strata.options{layer = strata.nn.ReLU{}} end, "layer", "a layer"},
  {function() strata.options{[true] = 1} end, "names or 1, 2, 3"},
}
