-- ConvNeXt (Liu et al., 2022), a convolutional network. By default it is small and trains on the digits that come with
-- Strata. ConvNeXt-T is --channels=3 --stem=4 --depths=3,3,9,3 --dims=96,192,384,768 --classes=1000.
local strata = require "strata"
local nn, F = strata.nn, strata.F

-- Options, each of which is also a flag (--channels=...):
--   channels  channels of the images
--   stem      the first layer makes one position of stem x stem pixels
--   depths    number of blocks in each stage of the network
--   dims      channels in each stage of the network
--   classes   number of classes
local opt = strata.options { channels = 1, stem = 1, depths = {2, 2}, dims = {32, 64}, classes = 10 }

-- LayerNorm over the channels of images.
local ChannelNorm = strata.layer {
  name = "ChannelNorm",
  init = function(self, dim) self.norm = nn.LayerNorm{dim, eps=1e-6} end,
  forward = function(self, x) return self.norm(x:permute(0, 2, 3, 1)):permute(0, 3, 1, 2) end,
}

-- The block of the paper: a depthwise convolution, then two Linear layers per position, added to the input.
local Block = strata.layer {
  name = "Block",
  init = function(self, dim)
    self.depthwise = nn.Conv2d{dim, dim, kernel_size=7, padding=3, groups=dim}
    self.norm = nn.LayerNorm{dim, eps=1e-6}
    self.up, self.down = nn.Linear{dim, 4 * dim}, nn.Linear{4 * dim, dim}
    self.scale = self:parameter{dim, fill=1e-6}
  end,
  forward = function(self, x)
    local y = self.norm(self.depthwise(x):permute(0, 2, 3, 1))
    y = self.scale * self.down(F.gelu(self.up(y)))
    return x + y:permute(0, 3, 1, 2)
  end,
}

local function stage(i)
  local dim, before = opt.dims[i + 1], opt.dims[i]
  return {
    before and { ChannelNorm{before}, nn.Conv2d{before, dim, kernel_size=2, stride=2} }
      or { nn.Conv2d{opt.channels, dim, kernel_size=opt.stem, stride=opt.stem}, ChannelNorm{dim} },
    strata.times(opt.depths[i + 1], function() return Block{dim} end),
  }
end

return strata.job {
  name   = "convnext",
  layers = {
    strata.times(#opt.dims, stage),
    nn.AdaptiveAvgPool2d{1}, nn.Flatten{}, nn.LayerNorm{opt.dims[#opt.dims], eps=1e-6},
    nn.Linear{opt.dims[#opt.dims], opt.classes},
  },
  loss      = nn.CrossEntropyLoss{},
  batch     = { micro_batches = 4, micro_batch_size = 16 },
  optimizer = { "adamw", lr = 2e-3, weight_decay = 0.05 },
  data      = { train = strata.data.digits{}, test = strata.data.digits{split="test"} },
  epochs    = 4,
}
