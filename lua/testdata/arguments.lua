-- How layers and losses take their arguments: by position, by name and mixed. This covers every type, and reads the
-- names of the fields from the help that each type prints. (Wrong arguments: engine/layers/wrong_inputs_test.cc.)
local strata = require "strata"
local expect = require "expect"
local nn = strata.nn

-- The fewest arguments that each type takes.
local ARGUMENTS = {
  Linear = {4, 3}, Conv1d = {2, 4, 3}, Conv2d = {2, 4, 3}, ConvTranspose2d = {2, 4, 3}, Embedding = {10, 4},
  LayerNorm = {4}, RMSNorm = {4}, BatchNorm2d = {4}, GroupNorm = {2, 4}, MultiheadAttention = {8, 2},
  TransformerEncoderLayer = {8, 2}, TransformerDecoderLayer = {8, 2}, Transformer = {8, 2}, MaxPool2d = {2},
  AvgPool2d = {2}, AdaptiveAvgPool2d = {1}, Unflatten = {1, {2, 2}}, Flatten = {}, Dropout = {}, GELU = {}, Softmax = {},
  Identity = {}, LeakyReLU = {}, ReLU = {}, SiLU = {}, Sigmoid = {}, Tanh = {}, CrossEntropyLoss = {}, MSELoss = {},
  NLLLoss = {}, BCEWithLogitsLoss = {}, L1Loss = {}, ELU = {}, SELU = {}, CELU = {}, Softplus = {}, Softsign = {},
  Hardswish = {}, Hardsigmoid = {}, Hardtanh = {}, ReLU6 = {}, Mish = {}, LogSoftmax = {}, LogSigmoid = {},
  Tanhshrink = {}, Softshrink = {}, Hardshrink = {}, Threshold = {0.1, 2}, GLU = {}, PReLU = {},
  Upsample = {2}, PixelShuffle = {2}, PixelUnshuffle = {2}, Unfold = {2}, Fold = {4, 2}, Bilinear = {3, 4, 5},
  CosineSimilarity = {}, PairwiseDistance = {}, EmbeddingBag = {10, 4}, RNN = {4, 3}, LSTM = {4, 3}, GRU = {4, 3},
  RotaryEmbedding = {4}, GroupedQueryAttention = {8, 2}, SwiGLU = {4, 8}, AlphaDropout = {},
  SmoothL1Loss = {}, HuberLoss = {}, BCELoss = {}, KLDivLoss = {}, PoissonNLLLoss = {}, GaussianNLLLoss = {},
  CTCLoss = {}, TripletMarginLoss = {}, CosineEmbeddingLoss = {},
}
-- Types that exist for 1 to 3 dims.
local FAMILIES = {
  Conv = {2, 4, 3}, ConvTranspose = {2, 4, 3}, BatchNorm = {4}, InstanceNorm = {4}, Dropout = {}, MaxPool = {2},
  AvgPool = {2}, AdaptiveAvgPool = {1}, AdaptiveMaxPool = {1}, ZeroPad = {1}, ConstantPad = {1, 0.5},
  ReflectionPad = {1}, ReplicationPad = {1}, CircularPad = {1},
}
for family, arguments in pairs(FAMILIES) do
  for dims = 1, 3 do ARGUMENTS[family .. dims .. "d"] = arguments end
end

-- The names of the fields in order, as the printed help has them behind its first three lines.
local function fields(constructor)
  local list = {}
  for line in tostring(constructor):gsub("\n +", " "):gmatch("[^\n]+") do list[#list + 1] = line:match("^%S+") end
  return {unpack(list, 4)}
end

local function copy(list)
  local new = {}
  for key, value in pairs(list) do new[key] = value end
  return new
end

for name, arguments in pairs(ARGUMENTS) do
  local make, list = nn[name], fields(nn[name])
  local layer = make(copy(arguments))
  expect.equal(layer.type, name)

  -- Parentheses mean the same as braces, and positions the same as names.
  expect.equal(tostring(make(unpack(arguments))), tostring(layer))
  local by_name = {}
  for i, argument in ipairs(arguments) do by_name[list[i]] = argument end
  expect.equal(tostring(make(copy(by_name))), tostring(layer))
  if #arguments > 1 then
    local mixed = {arguments[1]}
    for i = 2, #arguments do mixed[list[i]] = arguments[i] end
    expect.equal(tostring(make(copy(mixed))), tostring(layer))
    -- An argument that is given both by position and by name is an error.
    mixed[list[1]] = arguments[1]
    expect.error(function() make(mixed) end, "arguments.lua:", name, list[1])
  end

  -- No field accepts a layer, a coroutine or a cut.
  for _, field in ipairs(list) do
    for _, odd in ipairs{nn.ReLU{}, nn.ReLU, coroutine.create(print), strata.cut()} do
      local given = copy(by_name)
      given[field] = odd
      expect.error(function() make(given) end, "arguments.lua:", field)
    end
  end
end

-- Containers take layers by position, also in lists, and nothing else.
for _, name in ipairs{"Sequential", "Residual"} do
  local make = nn[name]
  local one = make{nn.Linear{4, 4}, nn.ReLU{}}
  expect.equal(tostring(make(nn.Linear{4, 4}, nn.ReLU{})), tostring(one))
  expect.equal(tostring(make{{nn.Linear{4, 4}, {nn.ReLU{}}}}), tostring(one))
  expect.equal(one.parameters, 20)
  expect.equal(make{nn.ReLU{}, name = "block"}.name, "block")
  expect.errors{
    {function() make{} end, "arguments.lua:", name},
    {function() make{7} end, name, "the number 7"},
    {function() make{"ReLU"} end, name, '"ReLU"'},
    {function() make{nn.ReLU} end, "bare nn.ReLU", "nn.ReLU{}"},
    {function() make{nn.ReLU{}, strata.cut()} end, "strata.cut()"},
    {function() make{nn.ReLU{}, nam = "x"} end, '"nam"', "name"},
    {function() make{nn.ReLU{}, nn.MSELoss{}} end, "a loss"},
  }
end
