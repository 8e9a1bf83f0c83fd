-- A vision transformer, as transformers' ViTForImageClassification computes it.
local strata = require "strata"
local nn, F = strata.nn, strata.F
local opt = strata.options {
  pixels = 224, patch = 16, dim = 768, heads = 12, depth = 12, hidden = 3072, classes = 1000, dropout = 0.0,
}

local Tokens = strata.layer {  -- a token for the class before those of the patches, and their places
  name = "Tokens",
  init = function(self, patches, dim)
    local function small(w) w:normal_(0, 0.02) end
    self.class = self:parameter{1, 1, dim, init = small}
    self.position = self:parameter{1, patches + 1, dim, init = small}
  end,
  forward = function(self, x)
    return F.cat({self.class:expand{x.shape[1], -1, -1}, x}, 1) + self.position
  end,
}

return strata.job {
  name   = "vit",
  input  = { shape = {3, opt.pixels, opt.pixels} },
  layers = {
    nn.Conv2d{3, opt.dim, kernel_size = opt.patch, stride = opt.patch, name = "patches"},
    function(x) return x:flatten(2):transpose(1, 2) end,
    Tokens{(opt.pixels / opt.patch) ^ 2, opt.dim, name = "tokens"}, nn.Dropout{opt.dropout},
    strata.times(opt.depth, function(i)
      return nn.TransformerEncoderLayer{opt.dim, opt.heads, dim_feedforward = opt.hidden, dropout = opt.dropout,
        activation = "gelu", layer_norm_eps = 1e-12, batch_first = true, norm_first = true, name = "layer." .. i}
    end),
    nn.LayerNorm{opt.dim, eps = 1e-12, name = "norm"},
    function(x) return x:select(1, 0) end,
    nn.Linear{opt.dim, opt.classes, name = "classifier"},
  },
  loss      = nn.CrossEntropyLoss{},
  batch     = { micro_batches = 4, micro_batch_size = 8 },
  optimizer = { "adamw", lr = 3e-4 },
  clip      = 1.0,
  data      = { train = strata.data.images{shape = {3, opt.pixels, opt.pixels}, classes = opt.classes} },
  steps     = 20,
}
