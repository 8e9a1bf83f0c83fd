-- A U-Net (Ronneberger et al., 2015) that finds the pixels of discs in noisy images. Its loss is the sum of Dice and
-- binary cross-entropy. The connections from the way down to the way up are skips, so the list can be cut anywhere.
local strata = require "strata"
local nn, F = strata.nn, strata.F

-- Options, each of which is also a flag (--image=...):
--   image  images have image x image pixels
--   width  channels of the first level; each level doubles them
--   depth  levels, each of which halves the image
local opt = strata.options { image = 32, width = 8, depth = 2 }

local function double(from, to)
  local function half(a, b)
    return { nn.Conv2d{a, b, kernel_size=3, padding=1, bias=false}, nn.BatchNorm2d{b}, nn.ReLU{} }
  end
  return { half(from, to), half(to, to) }
end

-- Level i, around the deeper levels `inside`.
local function level(i, inside)
  local width = opt.width * 2^i
  return {
    double(i == 0 and 1 or width / 2, width), strata.skip{"level" .. i}, nn.MaxPool2d{2},
    inside,
    nn.ConvTranspose2d{2 * width, width, kernel_size=2, stride=2}, strata.join{"level" .. i, how="cat", dim=1},
    double(2 * width, width),
  }
end

local net = double(opt.width * 2^(opt.depth - 1), opt.width * 2^opt.depth)
for i = opt.depth - 1, 0, -1 do net = level(i, net) end

local function loss(output, target)
  local p = output:sigmoid()
  local dice = 1 - (2 * (p * target):sum() + 1) / (p:sum() + target:sum() + 1)
  local bce = F.binary_cross_entropy_with_logits(output, target)
  return dice + bce, { dice = dice, bce = bce }
end

-- Micro-batch i: noisy images with one disc each, and the masks of the discs.
local function discs(i)
  local n, size = 8, opt.image
  local at = F.rand{n, 3, 1, 1}
  local y, x = F.arange(size):view{1, size, 1} / size, F.arange(size):view{1, 1, size} / size
  local distance = (y - at:select(1, 0))^2 + (x - at:select(1, 1))^2
  local mask = distance:lt(0.02 + 0.06 * at:select(1, 2)):float():unsqueeze(1)
  return mask + 0.5 * F.randn{n, 1, size, size}, mask
end

return strata.job {
  name      = "unet",
  layers    = { net, nn.Conv2d{opt.width, 1, kernel_size=1} },
  loss      = loss,
  batch     = { micro_batches = 2, micro_batch_size = 8 },
  optimizer = { "adam", lr = 2e-3 },
  data      = discs,
  steps     = 60,
}
