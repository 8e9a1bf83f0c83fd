-- A causal Transformer that predicts the next byte of a text: by default, of the licence texts that every Debian
-- machine has.
--   tools/strata train models/textlm.lua --path=book.txt
local strata = require "strata"
local nn = strata.nn

-- Options, each of which is also a flag (--path=...):
--   path     a text, or a folder of texts, to train on
--   seq      bytes that the model sees at once
--   dim      width: numbers per byte
--   heads    attention heads; dim must be a multiple
--   depth    Transformer layers
--   dropout  share of values that a training step sets to 0
local opt = strata.options {
  path = "/usr/share/common-licenses", seq = 64, dim = 128, heads = 4, depth = 4, dropout = 0.1,
}

-- A layer of our own: it adds a trained vector to each position of the sequence.
local Position = strata.layer {
  name = "Position",
  init = function(self, seq, dim) self.weight = self:parameter{seq, dim, fill=0} end,
  forward = function(self, x) return x + self.weight:narrow(0, strata.position(), x.shape[2]) end,
}

return strata.job {
  name   = "textlm",
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
  parallel    = { pipe = 2 },
  batch       = { micro_batches = 4, micro_batch_size = 8 },
  optimizer   = { "adamw", lr = 2e-3, weight_decay = 0.01 },
  lr_schedule = { "cosine", warmup = 20, final = 0.1 },
  clip        = 1.0,
  data        = {
    train = strata.data.text{opt.path, length=opt.seq},
    test  = strata.data.text{opt.path, length=opt.seq, split="test"},
  },
  steps       = 200,
}
