-- A causal Transformer that predicts the next byte of a text.
--   strata train train.lua
local strata = require "strata"
local nn = strata.nn

-- Each option is also a flag: strata train train.lua --path=book.txt --depth=6
local opt = strata.options {
  path    = "text.txt",  -- a text, or a folder of texts; text.txt is a page about Strata
  seq     = 64,          -- bytes that the model sees at once
  dim     = 64,          -- width: numbers per byte
  heads   = 4,           -- attention heads; dim must be a multiple
  depth   = 2,           -- Transformer layers
  dropout = 0.1,         -- share of values that a training step sets to 0, against overfitting
}

-- A layer of our own: it adds a trained vector to each position of the sequence.
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
  loss        = nn.CrossEntropyLoss{class_dim=-1},  -- a row of scores for each token
  parallel    = { pipe = 2 },            -- number of stages; `strata plan` shows where the list of layers is cut
  schedule    = "1f1b",                  -- order of the work; `strata help schedule` lists all schedules
  batch       = { micro_batches = 4, micro_batch_size = 4 },
  optimizer   = { "adamw", lr = 2e-3, weight_decay = 0.01 },
  lr_schedule = { "cosine", warmup = 10, final = 0.1 },  -- learning rate: up for 10 steps, then down to a tenth
  clip        = 1.0,                     -- largest norm of the gradient of all parameters
  data        = {
    train = strata.data.text{opt.path, length=opt.seq},
    test  = strata.data.text{opt.path, length=opt.seq, split="test"},
  },
  steps       = 100,
}
