-- strata.data: the options of every source with their limits, and jobs whose data is a source or a function.
local strata = require "strata"
local expect = require "expect"
local data, nn = strata.data, strata.nn

-- Defaults, and options given by position or by name.
for _, case in ipairs{
  {data.digits{}, "digits", {split = "train"}},
  {data.digits{split = "test"}, "digits", {split = "test"}},
  {data.cifar10{"folder"}, "cifar10", {path = "folder", split = "train"}},
  {data.cifar10{path = "folder", split = "test"}, "cifar10", {path = "folder", split = "test"}},
  {data.images{{1, 4, 4}}, "images", {shape = {1, 4, 4}}},
  {data.images{shape = {2, 3}, classes = 7, samples = 9}, "images", {shape = {2, 3}, classes = 7, samples = 9}},
  {data.tokens{50, length = 8}, "tokens", {vocabulary = 50, length = 8}},
  {data.tokens{vocabulary = 50, length = 8, samples = 3}, "tokens", {vocabulary = 50, length = 8, samples = 3}},
  {data.text{"book.txt", length = 16}, "text", {path = "book.txt", length = 16}},
} do
  local source, kind, options = unpack(case)
  expect.equal(source.source, kind)
  for name, value in pairs(options) do expect.equal(source.options[name], value) end
  expect.equal(source.where:match("sources.lua:%d+$") ~= nil, true)
end

expect.equal({data.cifar10{"x", size = 64}.path, data.cifar10{"x", size = 64}.size}, {"x", 64})
expect.equal({data.images{}.classes, data.cifar10("").source}, {10, "cifar10"})

-- A job without an input takes the input of its source.
local function planned(source, ...)
  return strata.job{
    layers = {...}, data = source, batch = {micro_batches = 1, micro_batch_size = 3}, device = "cpu",
  }:plan{}
end
local function output(source, ...)
  local layers = planned(source, ...).layers
  return layers[#layers].output[1].shape
end
expect.equal(output(data.digits{}, nn.Identity{}), {3, 1, 8, 8})
expect.equal(output(data.digits{}, nn.Flatten{}, nn.Linear{64, 10}), {3, 10})
expect.equal(output(data.images{{3, 5, 6}}, nn.Identity{}), {3, 3, 5, 6})
expect.equal(output(data.cifar10{""}, nn.Identity{}), {3, 3, 32, 32})
expect.equal(output(data.cifar10{"", size = 64}, nn.Identity{}), {3, 3, 64, 64})
expect.equal(output(data.tokens{50, length = 8}, nn.Embedding{50, 4}), {3, 8, 4})
expect.equal(planned({train = data.digits{}, test = data.digits{split = "test"}}, nn.Identity{}).layers[1].output[1].shape,
  {3, 1, 8, 8})
-- The error for a source that does not fit the first layer names the source.
expect.error(function() planned(data.digits{}, nn.Linear{64, 10}) end, "sources.lua:", "Linear(64, 10", "8")
expect.error(function() planned(data.tokens{50, length = 8}, nn.Linear{8, 2}) end, "sources.lua:", "int64")

-- Targets of a source that do not fit a loss.
local function with_loss(loss, classes, outputs)
  return {function()
    strata.job{
      layers = {nn.Flatten{}, nn.Linear{16, outputs}}, loss = loss, data = data.images{{1, 4, 4}, classes = classes},
      batch = {micro_batches = 1, micro_batch_size = 2}, device = "cpu",
    }:plan{}
  end, "sources.lua:"}
end
expect.errors{with_loss(nn.MSELoss{}, 10, 10), with_loss(nn.BCEWithLogitsLoss{}, 3, 3)}
with_loss(nn.CrossEntropyLoss{}, 10, 10)[1]()
with_loss(nn.NLLLoss{}, 10, 10)[1]()

expect.errors{
  {function() return data.digts end, "sources.lua:", "strata.data.digts", 'did you mean "digits"?'},
  {function() return data.tex end, 'did you mean "text"?'},
  {function() data.digits{"train", "x"} end, "digits"},
  {function() data.digits{split = "valid"} end, "split", '"valid"', "train"},
  {function() data.digits{split = 7} end, "split"},
  {function() data.digits{splt = "test"} end, '"splt"', "split"},
  {function() data.digits{folder = "x"} end, '"folder"'},
  {function() data.digits{shuffle = "yes"} end, "shuffle"},
  {function() data.digits{function() end} end, "sources.lua:"},
  {function() data.digits{nn.ReLU{}} end, "a layer"},
  {function() return data.imagenet end, "strata.data.imagenet"},
  {function() data.cifar10{7} end, "path", "7"},
  {function() data.cifar10{} end, "path"},
  {function() data.cifar10{{"a"}} end, "path"},
  {function() data.cifar10{"", size = 0} end, "size", "0"},
  {function() data.cifar10{"", size = -3} end, "size", "-3"},
  {function() data.images{{3, -1}} end, "shape", "-1"},
  {function() data.images{{3.5}} end, "shape", "3.5"},
  {function() data.images{classes = "ten"} end, "classes", '"ten"'},
  {function() data.images{classes = 2.5} end, "classes"},
  {function() data.images{samples = 0} end, "samples", "0"},
  {function() data.images{samples = 1e18} end, "samples"},
  {function() data.tokens{length = 8} end, "vocabulary"},
  {function() data.tokens{10, length = "long"} end, "length"},
  {function() data.tokens{50, length = 0} end, "length", "0"},
  {function() data.tokens{-5} end, "vocabulary", "-5"},
  {function() data.text{"x", length = 0} end, "length", "0"},
  {function() data.text{"x", lenght = 8} end, '"lenght"', "length"},
  {function() data.digits(data.digits{}) end, "sources.lua:"},
  {function() data.digits{seed = print} end, "sources.lua:", '"seed"'},
}
-- A value that is not a source is refused where it is written.
local function refuse(source, ...)
  return {function() planned(source, nn.Identity{}) end, "sources.lua:", ...}
end
expect.errors{
  refuse("digits", "data"), refuse({source = "digts"}, "digts"), refuse({train = 5}, "the number 5"),
  refuse({trian = data.digits{}}, '"trian"', "train"), refuse(true, "data", "true"), refuse(nn.ReLU{}, "data", "a layer"),
}
