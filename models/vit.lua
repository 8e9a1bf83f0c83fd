-- A vision transformer (Dosovitskiy et al., 2020) with patches, a class token and learned positions. By default it is
-- small and trains on the handwritten digits that come with Strata.
--   ViT-B/16:  --image=224 --patch=16 --channels=3 --dim=768 --depth=12 --heads=12
local strata = require "strata"
local nn, F = strata.nn, strata.F

-- Options, each of which is also a flag (--image=...):
--   image     images have image x image pixels
--   patch     patches have patch x patch pixels; image must be a multiple
--   channels  channels of the images
--   dim       width: numbers per patch
--   depth     Transformer layers
--   heads     attention heads; dim must be a multiple
--   classes   number of classes
--   dropout   share of values that a training step sets to 0
local opt = strata.options {
  image = 8, patch = 2, channels = 1, dim = 64, depth = 4, heads = 4, classes = 10, dropout = 0.0,
}

local Tokens = strata.layer {
  name = "Tokens",
  init = function(self, dim)
    self.conv_proj = nn.Conv2d{opt.channels, dim, kernel_size=opt.patch, stride=opt.patch}
    self.class_token = self:parameter{1, 1, dim}
    local places = (opt.image / opt.patch)^2 + 1
    self.position = self:parameter{1, places, dim, init=function(p) nn.init.normal_(p, 0, 0.02) end}
  end,
  forward = function(self, image)
    local x = self.conv_proj(image):flatten(2):transpose(1, 2)
    return F.cat({self.class_token:expand{x.shape[1], -1, -1}, x}, 1) + self.position
  end,
}

return strata.job {
  name   = "vit",
  layers = {
    Tokens{opt.dim},
    strata.times(opt.depth, function()
      return nn.TransformerEncoderLayer{opt.dim, opt.heads, dim_feedforward=4 * opt.dim, dropout=opt.dropout,
        activation="gelu", batch_first=true, norm_first=true}
    end),
    nn.LayerNorm{opt.dim},
    function(x) return x:select(1, 0) end,
    nn.Linear{opt.dim, opt.classes},
  },
  loss      = nn.CrossEntropyLoss{},
  batch     = { micro_batches = 4, micro_batch_size = 16 },
  optimizer = { "adamw", lr = 1e-3, weight_decay = 0.05 },
  data      = { train = strata.data.digits{}, test = strata.data.digits{split="test"} },
  epochs    = 10,
}
