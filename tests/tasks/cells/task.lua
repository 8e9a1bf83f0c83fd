-- Finds the cells of an image: a U-Net whose loss has two parts.
local strata = require "strata"
local nn, F = strata.nn, strata.F
local train, test = strata.data.npy{"images.npy", "masks.npy"}:split{0.85, 0.15}

local function double(from, to)
  local function half(a, b) return { nn.Conv2d{a, b, kernel_size = 3, padding = 1}, nn.BatchNorm2d{b}, nn.ReLU{} } end
  return { half(from, to), half(to, to) }
end

local function loss(output, mask)
  local p = output:sigmoid()
  local dice = 1 - (2 * (p * mask):sum() + 1) / (p:sum() + mask:sum() + 1)
  local bce = F.binary_cross_entropy_with_logits(output, mask)
  return dice + bce, { dice = dice, bce = bce }
end

return strata.job {
  layers = {
    double(1, 8), strata.skip{"fine"}, nn.MaxPool2d{2}, double(8, 16),
    nn.ConvTranspose2d{16, 8, kernel_size = 2, stride = 2},
    strata.join{"fine", how = "cat", dim = 1}, double(16, 8), nn.Conv2d{8, 1, kernel_size = 1},
  },
  loss      = loss,
  batch     = { micro_batches = 2, micro_batch_size = 8 },
  optimizer = { "adam", lr = 5e-3 },
  data      = { train = train, test = test },
  eval      = { every = 10 },
  epochs    = 6,
}
