-- A vision transformer, small: its patches are transposed, its class token is added by cat and taken
-- out of the middle of memory.
local strata = require "strata"
local nn, F = strata.nn, strata.F

local ClassToken = strata.layer{
  name = "ClassToken",
  init = function(self, tokens, dim)
    self.class = self:parameter{1, 1, dim, fill = 0.1}
    self.position = self:parameter{1, tokens + 1, dim, fill = 0.2}
  end,
  forward = function(self, x)
    return F.cat({self.class:expand{x.shape[1], -1, -1}, x}, 1):add_(self.position)
  end,
}

return strata.job {
  layers = {
    nn.Conv2d{3, 48, kernel_size = 4, stride = 4},
    function(x) return x:flatten(2):transpose(1, 2) end,
    ClassToken{64, 48},
    strata.times(2, function()
      return nn.TransformerEncoderLayer{48, 4, dim_feedforward = 96, dropout = 0.1, batch_first = true}
    end),
    function(x) return x:select(1, 0) end,
    nn.LayerNorm{48}, nn.Linear{48, 10},
  },
  loss = nn.CrossEntropyLoss{}, optimizer = {"adamw", lr = 0.001}, steps = 2, threads = 1,
  batch = { micro_batches = 4, micro_batch_size = 3 },
  data = function(i) return F.randn{3, 3, 32, 32}, F.randint(10, {3}) end,
}
