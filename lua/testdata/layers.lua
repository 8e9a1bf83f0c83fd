local strata = require "strata"
local expect = require "expect"
local nn = strata.nn

-- One call in all its forms.
local linear = nn.Linear{9216, 4096}
expect.equal(linear.type, "Linear")
expect.equal(linear.parameters, 9216 * 4096 + 4096)
expect.equal(tostring(nn.Linear(9216, 4096)), tostring(linear))
expect.equal(tostring(nn.Linear{in_features = 9216, out_features = 4096}), tostring(linear))
expect.equal(nn.Linear{8, 4, bias = false}.parameters, 32)
expect.equal(nn.Linear(8, 4, {bias = false}).parameters, 32)
expect.equal(nn.Linear{8, 4, name = "head"}.name, "head")
expect.equal(linear.where:match("layers.lua:%d+$"), "layers.lua:6")
expect.equal(nn.Conv2d{3, 64, kernel_size = 11, stride = 4, padding = 2}.parameters, 23296)
expect.equal(nn.AdaptiveAvgPool2d{{6, 6}}.args.output_size, {6, 6})
expect.equal(nn.AdaptiveAvgPool2d{6}.args.output_size, {6, 6})
expect.equal(nn.MaxPool2d{3, stride = 2}.args.stride, {2, 2})

-- Megatron-LM's names for split layers.
local column = nn.ColumnParallelLinear{16, 64, gather_output = false}
expect.equal(column.type, "Linear")
expect.equal(column.parameters, 16 * 64 + 64)
expect.equal(tostring(column), 'Linear(16, 64, gather_output=false, split="column")')
expect.equal(tostring(nn.RowParallelLinear(64, 16, {bias = false})),
             tostring(nn.Linear{64, 16, bias = false, split = "row"}))
expect.equal(nn.VocabParallelEmbedding{256, 16}.args.split, "row")
expect.equal(tostring(nn.ParallelCrossEntropyLoss{}), "CrossEntropyLoss()")
expect.error(function() nn.ColumnParalelLinear{16, 64} end, "ColumnParallelLinear")

-- The place of a layer is right even in a tail call.
local function block(n)
  return nn.Linear{n, n}
end
expect.equal(block(3).where:match("layers.lua:%d+$"), "layers.lua:33")

-- Containers.
local s = nn.Sequential{nn.Linear{4, 8}, {nn.ReLU{}, {nn.Linear{8, 2}}}, name = "mlp"}
expect.equal(s.parameters, 40 + 18)
expect.equal(s.name, "mlp")
expect.equal(nn.Sequential(nn.Linear(4, 8), nn.ReLU{}).parameters, 40)

-- strata.times counts from 0.
local names = {}
local list = strata.times(3, function(i)
  names[#names + 1] = "block" .. i
  return nn.Linear{4, 4}
end)
expect.equal(names, {"block0", "block1", "block2"})
expect.equal(#list, 3)
expect.equal(#strata.times(0, print), 0)

local RMS = strata.layer{name = "RMS", forward = function(self, x) return x end}

-- Errors.
expect.error(function() return nn.Lineer end, "nn.Lineer", "Linear")
expect.error(function() nn.Linear{8} end, "layers.lua:", "Linear", "out_features")
expect.error(function() nn.Linear{8, 4, 2, 1, 1, 1, 1, 1} end, "Linear")
expect.error(function() nn.Linear{8, 4, bais = false} end, '"bais"', "bias")
expect.error(function() nn.Linear{8, "four"} end, "out_features", '"four"')
expect.error(function() nn.Linear{8, 4.5} end, "out_features")
expect.error(function() nn.Linear{8, 0} end, "out_features")
expect.error(function() nn.Linear{8, nn.ReLU{}} end, "Linear's argument 2", "a layer")
expect.error(function() nn.Linear{8, 4, bias = nn.ReLU} end, "Linear's bias")
expect.error(function() nn.Sequential{nn.Linear{4, 8}, nn.ReLU} end, "bare nn.ReLU", "nn.ReLU{}")
expect.error(function() nn.Sequential{RMS} end, "bare RMS", "RMS{}")
expect.error(function() nn.Sequential{} end, "at least one layer")
expect.error(function() nn.Sequential{nn.ReLU{}, 7} end, "the number 7")
expect.error(function() nn.Sequential{{nn.ReLU{}, x = 1}} end, 'no key "x"')
expect.error(function() nn.Sequential{nn.ReLU{}, strata.cut()} end, "strata.cut()")
expect.error(function() nn.Sequential{nn.CrossEntropyLoss{}} end, "a loss")
expect.error(function() strata.cut(3) end, "no arguments")
-- Names that will come later, and names that never will.
expect.equal(tostring(strata.skip{"low"}), 'skip(key="low")')
expect.equal(tostring(strata.join{"low", how="cat", dim=2}), 'join(key="low", how="cat", dim=2)')
expect.error(function() return strata.skip{} end, "skip", "key")
expect.error(function() return strata.join{"low", how="sum"} end, '"add", "cat", "pass"')
expect.error(function() return strata.job{layers={strata.join}} end, "strata.join{}")
expect.error(function() return strata.nm end, "strata.nm", "nn")

-- max_norm may use the norm of the largest absolute value; a weight may be a single number.
expect.equal(nn.Embedding{5, 2, max_norm = 1, norm_type = math.huge}.args.norm_type == math.huge, true)
expect.equal(nn.Embedding{5, 2}.args.norm_type, 2)
for _, wrong in ipairs{0, -1, 0 / 0, -math.huge, "inf", {2}} do
  expect.error(function() nn.Embedding{5, 2, norm_type = wrong} end, "layers.lua:", "norm_type expects a number above 0, or math.huge")
end
expect.equal(nn.BCEWithLogitsLoss{pos_weight = 3}.args.pos_weight, {3})
expect.equal(tostring(nn.BCEWithLogitsLoss{pos_weight = 3}), tostring(nn.BCEWithLogitsLoss{pos_weight = {3}}))
for name, loss in pairs{weight = nn.CrossEntropyLoss, pos_weight = nn.BCEWithLogitsLoss} do
  expect.error(function() loss{[name] = {1, -1}} end, name .. " expects a number or a list of numbers, at least 0", "{1, -1}")
end
