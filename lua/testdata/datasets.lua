-- Data from files, and steps on it, as far as they need no tensors.
local strata = require "strata"
local expect = require "expect"
local data, nn = strata.data, strata.nn

-- Data is opened when its content is first read.
local houses = data.csv{"tables/houses.csv", target = "price"}
expect.equal(houses.options.path, "tables/houses.csv")
expect.equal(#houses, 12)
expect.equal(tostring(houses):match("^csv: 12 rows of [^\n]*, 3 columns as 4 numbers %-> price\n") ~= nil, true)
expect.equal(tostring(houses):find("float32 (4,) -> float32 (1,)", 1, true) ~= nil, true)
expect.equal(data.csv{"tables/missing.csv"}.options.path, "tables/missing.csv")

-- The result of a step is data too.
local train, test, rest = houses:split{0.5, 0.25, 0.25, seed = 3}
expect.equal({#train, #test, #rest}, {6, 3, 3})
expect.equal({#houses:split{5, 2}}, {5})
local five, two = houses:split{5, 2, seed = false}
expect.equal({#five, #two}, {5, 2})
expect.equal(#houses:take(4), 4)
expect.equal(#houses:take{count = 100}, 12)
expect.equal(#houses:take(4):concat(train, test), 13)
expect.equal(#houses:shuffle(7):cache(), 12)
expect.equal(tostring(houses:take(4)):match("^[^\n]*"):match("the first 4"), "the first 4")
expect.equal(houses:take(4).of.options.path, "tables/houses.csv")

-- A job knows the shapes of its data.
local function planned(source, ...)
  return strata.job{
    layers = {...}, data = source, batch = {micro_batches = 1, micro_batch_size = 3}, device = "cpu",
  }:plan{}
end
local function output(source, ...)
  local layers = planned(source, ...).layers
  return layers[#layers].output[1].shape
end
expect.equal(output(houses, nn.Linear{4, 2}), {3, 2})
expect.equal(output(train:take(3), nn.Identity{}), {3, 4})
expect.equal(output(data.token_file{"tables/houses.csv", dtype = "uint8", length = 7}, nn.Identity{}), {3, 7})
expect.equal(output(data.images{{1, 8, 8}}:take(5):resize{4}, nn.Identity{}), {3, 1, 4, 4})
expect.equal(output(data.images{{3, 9, 9}}:random_crop{8, padding = 1}:flip{}:normalise{mean = {0.5}, std = {0.2}}, nn.Identity{}), {3, 3, 8, 8})

expect.errors{
  {function() return #data.csv{"tables/missing.csv"} end, "datasets.lua:", "cannot read", "tables/missing.csv"},
  {function() planned(data.csv{"tables/missing.csv"}, nn.Identity{}) end, "datasets.lua:", "cannot read"},
  {function() return #data.csv{"tables/houses.csv", target = "prize"} end, "houses.csv", 'did you mean "price"?'},
  {function() planned(houses, nn.Linear{5, 2}) end, "datasets.lua:", "Linear(5, 2"},
  {function() houses:split{0.5, 0.5, 0.25} end, "shares add up to at most 1, got 1.25"},
  {function() houses:split{10, 3} end, "the parts have 13 samples, the data has 12"},
  {function() houses:split{} end, "shares"},
  {function() houses:split{"half"} end, "shares", '"half"'},
  {function() houses:split{0.5, sed = 3} end, '"sed"'},
  {function() houses:split{0.001, 0.9} end, "part 1 of 12 samples has none"},
  {function() houses:take(0) end, "datasets.lua:", "count expects"},
  {function() houses:take{"few"} end, "count expects", '"few"'},
  {function() houses:tkae(3) end, 'a dataset has no "tkae"', '"take"'},
  {function() houses:concat(3) end, "expected a dataset", "the number 3"},
  {function() return #houses:concat(data.images{{4}}) end, "concat: expected samples as those of"},
  {function() return #houses:resize{4} end, "expects float32 images"},
  {function() return #data.images{{3, 4, 4}}:random_crop{9} end, "random_crop", "at least 9x9"},
  {function() strata.dataset{length = 3} end, "datasets.lua:", "got none"},
  {function() strata.dataset{length = 0, get = print} end, "length"},
  {function() houses.size = 3 end, "a dataset cannot be changed"},
  {function() return #data.image_folder{"tables", size = 8} end, "tables: expected a sub-folder of images"},
  {function() return #data.image_folder{"tables"} end, "needs size"},
  {function() data.image_folder{"tables", broken = "delete"} end, "broken", '"delete"'},
  {function() return #data.text{"tables/houses.csv", length = 4, tokenizer = "tables/houses.csv"} end, "expected a Hugging Face"},
}

-- The files that scripts may read.
expect.errors{
  {function() return #data.csv{"/etc/passwd"} end, "datasets.lua:", "below the script's folder", '"/etc/passwd"', "--allow_read=DIR"},
  {function() return #data.csv{"../BUILD"} end, "below the script's folder", "--allow_read=DIR"},
  {function() return #data.csv{"tables/houses.csv", like = "/etc/passwd"} end, "like must be"},
  {function() return #data.csv{"/etc/passwd"}:take(3) end, "--allow_read=DIR"},
  {function() planned(data.cifar10{"/etc"}, nn.Identity{}) end, "datasets.lua:", '"/etc"', "--allow_read=DIR"},
  {function() strata.read "/etc/passwd" end, "--allow_read=DIR"},
}
