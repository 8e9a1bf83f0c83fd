-- Text: a causal Transformer that predicts the next byte.
--   strata train train.lua
local strata = require "strata"
local nn = strata.nn

-- Each is a flag, too: strata train train.lua --path=book.txt --depth=6
local opt = strata.options {
  path    = "text.txt",  -- a text, or a folder of them; what comes along is a page about Strata
  seq     = 64,          -- bytes that it sees at once
  dim     = 64,          -- numbers per byte
  heads   = 4,           -- of attention; dim is a multiple
  depth   = 2,           -- Transformer layers
  dropout = 0.1,         -- share of values that a training step leaves out
}

-- A layer of our own: adds a trained vector to every place of the sequence.
local Position = strata.layer {
  name = "Position",
  init = function(self, seq, dim) self.weight = self:parameter{seq, dim, fill=0} end,
  forward = function(self, x) return x + self.weight:narrow(0, strata.position(), x.shape[2]) end,
}

return strata.job {
  layers = {
    nn.Embedding{256, opt.dim},
    Position{opt.seq, opt.dim},
    strata.times(opt.depth, function()
      return nn.TransformerEncoderLayer{opt.dim, opt.heads, dim_feedforward=4 * opt.dim,
        dropout=opt.dropout, activation="gelu", batch_first=true, norm_first=true, causal=true}
    end),
    nn.LayerNorm{opt.dim},
    nn.Linear{opt.dim, 256},
  },
  loss        = nn.CrossEntropyLoss{},
  parallel    = { pipe = 2 },            -- stages; strata plan shows where the list is cut
  schedule    = "1f1b",                  -- strata help schedule lists them
  batch       = { micro_batches = 4, micro_batch_size = 4 },
  optimizer   = { "adamw", lr = 2e-3, weight_decay = 0.01 },
  lr_schedule = { "cosine", warmup = 10, final = 0.1 },  -- up in 10 steps, then down to a tenth
  clip        = 1.0,                     -- largest norm of the whole gradient
  data        = {
    train = strata.data.text{opt.path, length=opt.seq},
    test  = strata.data.text{opt.path, length=opt.seq, split="test"},
  },
  steps       = 100,
}
