-- ResNet (He et al., 2015) of depth 18, 34 or 50. Its tensors have torchvision's names, so published weights can be
-- loaded. For small images use --stem=cifar --pixels=32. To train on from published weights with another number of
-- classes:
--   strata train models/resnet.lua --weights=resnet50.pth --weights.map=resnet --weights.except=fc --classes=10
local strata = require "strata"
local nn = strata.nn

-- Options, each of which is also a flag (--depth=...):
--   depth     18, 34 or 50 (10 is for tests)
--   classes   number of classes
--   stem      the first layers: "imagenet" reduces images by 4, "cifar" keeps their size
--   width     channels inside the blocks of the first group; each group doubles them
--   inplanes  channels after the first convolution; 0 = width
--   pixels    images have pixels x pixels
local opt = strata.options { depth = 18, classes = 1000, stem = "imagenet", width = 64, inplanes = 0, pixels = 224 }

local blocks = ({[10] = {1, 1, 1, 1}, [18] = {2, 2, 2, 2}, [34] = {3, 4, 6, 3}, [50] = {3, 4, 6, 3}})[opt.depth]
  or error("--depth is 10, 18, 34 or 50, not " .. opt.depth)
local small = opt.stem == "cifar" or opt.stem ~= "imagenet" and error("--stem is imagenet or cifar, not " .. opt.stem)
local wider = opt.depth == 50 and 4 or 1  -- the channels of a block's output, divided by those inside it

local function conv(name, from, to, size, stride)
  return nn.Conv2d{from, to, kernel_size = size, stride = stride or 1, padding = (size - 1) / 2, bias = false,
    name = name}
end
local function norm(name, channels) return nn.BatchNorm2d{channels, name = name} end

-- The part that is added to a block's result: the block's input, or a projection of it if the shape changes.
local function shortcut(name, from, to, stride)
  if from == to and stride == 1 then return strata.skip{name} end
  return {
    strata.skip{name .. ".input"},
    conv(name .. ".downsample.0", from, to, 1, stride), norm(name .. ".downsample.1", to), strata.skip{name},
    strata.join{name .. ".input", how = "pass"}, function(projected, input) return input end,
  }
end

local function block(name, from, inside, stride)
  local to = wider * inside
  local body = wider == 1 and {
    conv(name .. ".conv1", from, inside, 3, stride), norm(name .. ".bn1", inside), nn.ReLU{},
    conv(name .. ".conv2", inside, inside, 3), norm(name .. ".bn2", inside),
  } or {
    conv(name .. ".conv1", from, inside, 1), norm(name .. ".bn1", inside), nn.ReLU{},
    conv(name .. ".conv2", inside, inside, 3, stride), norm(name .. ".bn2", inside), nn.ReLU{},
    conv(name .. ".conv3", inside, to, 1), norm(name .. ".bn3", to),
  }
  return { shortcut(name, from, to, stride), body, strata.join{name}, nn.ReLU{} }
end

local from = opt.inplanes > 0 and opt.inplanes or opt.width
local function group(g)
  local inside = opt.width * 2 ^ g
  return strata.times(blocks[g + 1], function(i)
    local made = block("layer" .. g + 1 .. "." .. i, from, inside, g > 0 and i == 0 and 2 or 1)
    from = wider * inside
    return made
  end)
end

return strata.job {
  name   = "resnet",
  input  = { shape = {3, opt.pixels, opt.pixels} },
  layers = {
    conv("conv1", 3, from, small and 3 or 7, small and 1 or 2), norm("bn1", from), nn.ReLU{},
    small and {} or nn.MaxPool2d{3, stride = 2, padding = 1},
    strata.times(4, group),
    nn.AdaptiveAvgPool2d{1}, nn.Flatten{}, nn.Linear{wider * 8 * opt.width, opt.classes, name = "fc"},
  },
  loss      = nn.CrossEntropyLoss{},
  batch     = { micro_batches = 4, micro_batch_size = 8 },
  optimizer = { "sgd", lr = 0.1, momentum = 0.9, weight_decay = 1e-4 },
  data      = { train = strata.data.images{shape = {3, opt.pixels, opt.pixels}, classes = opt.classes} },
  steps     = 20,
}
