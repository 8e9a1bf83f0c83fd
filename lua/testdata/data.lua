-- strata.data: declarations, by position and by name.
local strata = require "strata"
local expect = require "expect"
local data = strata.data

local digits = data.digits{}
expect.equal(digits.source, "digits")
expect.equal(digits.options.split, "train")
expect.equal(data.digits{split = "test"}.options.split, "test")
expect.equal(digits.where:match("data.lua:%d+$"), "data.lua:6")

expect.equal(data.cifar10{"/some/folder"}.path, "/some/folder")
expect.equal(data.cifar10{"/some/folder", split = "test"}.options.split, "test")
expect.equal(data.cifar10{path = "x", size = 64}.size, 64)
expect.equal(data.cifar10("").source, "cifar10")

local images = data.images{{3, 8, 8}, classes = 5, samples = 100}
expect.equal(images.shape, {3, 8, 8})
expect.equal(images.classes, 5)
expect.equal(images.samples, 100)
expect.equal(data.images{}.classes, 10)

local tokens = data.tokens{50, length = 8}
expect.equal(tokens.vocabulary, 50)
expect.equal(tokens.length, 8)

expect.error(function() return data.digit end, "strata.data.digit", "digits")
expect.error(function() return data.imagenet end, "strata.data.imagenet")
expect.error(function() data.digits{splt = "test"} end, "data.lua:", '"splt"', "split")
expect.error(function() data.digits{split = "tset"} end, "split", '"tset"', "test")
expect.error(function() data.digits{split = 7} end, "split")
expect.error(function() data.cifar10{} end, "path")
expect.error(function() data.cifar10{7} end, "path", "7")
expect.error(function() data.images{{3, 0}} end, "shape")
expect.error(function() data.images{classes = 0} end, "classes")
expect.error(function() data.images{classes = 2.5} end, "classes")
expect.error(function() data.images{samples = -1} end, "samples")
expect.error(function() data.tokens{} end, "vocabulary")
expect.error(function() data.tokens{0} end, "vocabulary")
expect.error(function() data.tokens{10, length = "long"} end, "length")
expect.error(function() data.digits{shuffle = "yes"} end, "shuffle")
expect.error(function() data.digits{function() end} end, "data.lua:")
expect.error(function() data.digits{strata.nn.ReLU{}} end, "a layer")
