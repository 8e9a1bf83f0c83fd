local strata = require "strata"
local expect = require "expect"

expect.equal(strata.partition.uniform(10, 4), {0, 3, 6, 8, 10})
expect.equal(strata.partition.uniform(3, 5), {0, 1, 2, 3, 3, 3})
expect.equal(strata.partition.balanced({1, 1, 1, 5}, 2), {0, 3, 4})
expect.equal(strata.partition.balanced({0.5, 0.5, 1}, 2), {0, 2, 3})
expect.equal(strata.partition.balanced({1, 1, 1, 5}, 2, {compat = "deepspeed"}), {0, 3, 4})

expect.error(function() strata.partition.uniform(10) end, "partition.lua:", "parts", "nothing")
expect.error(function() strata.partition.uniform(10, 0) end, "partition.lua:")
expect.error(function() strata.partition.balanced({1, -1}, 1) end, "partition.lua:")
expect.error(function() strata.partition.balanced({1, "x"}, 1) end, "partition.lua:")
expect.error(function() strata.partition.balanced({1}, 1, {compat = "deepsped"}) end, "deepspeed")
expect.error(function() strata.partition.balanced({1}, 1, {compt = "deepspeed"}) end, "compat")
expect.error(function() strata.partition.balanced({1}, 1.5) end, "whole number of parts")
