-- BERT (Devlin et al., 2018) with a head that classifies sequences. It computes the same as
-- BertForSequenceClassification of the package transformers. All sequences have the full length, without padding, and
-- belong to one segment.
local strata = require "strata"
local nn, F = strata.nn, strata.F

-- Options, each of which is also a flag (--vocab=...):
--   vocab    number of different tokens
--   seq      tokens per sequence
--   dim      width: numbers per token
--   heads    attention heads; dim must be a multiple
--   depth    Transformer layers
--   hidden   width inside the feed-forward part of a layer
--   classes  number of classes
--   dropout  share of values that a training step sets to 0
--   rows     sequences per micro-batch
local opt = strata.options {
  vocab = 30522, seq = 512, dim = 768, heads = 12, depth = 12, hidden = 3072, classes = 2, dropout = 0.1, rows = 8,
}

local Embeddings = strata.layer {
  name = "Embeddings",
  init = function(self, vocab, seq, dim)
    local function small(w) w:normal_(0, 0.02) end
    self.word = self:parameter{vocab, dim, init = small}
    self.position = self:parameter{seq, dim, init = small}
    self.segment = self:parameter{2, dim, init = small}
  end,
  forward = function(self, x)
    return F.embedding(x, self.word) + self.position:narrow(0, 0, x.shape[2]) + self.segment[0]
  end,
}

return strata.job {
  name   = "bert",
  layers = {
    Embeddings{opt.vocab, opt.seq, opt.dim, name = "embeddings"},
    nn.LayerNorm{opt.dim, eps = 1e-12, name = "embeddings.LayerNorm"}, nn.Dropout{opt.dropout},
    strata.times(opt.depth, function(i)
      return nn.TransformerEncoderLayer{opt.dim, opt.heads, dim_feedforward = opt.hidden, dropout = opt.dropout,
        activation = "gelu", layer_norm_eps = 1e-12, batch_first = true, name = "layer." .. i}
    end),
    function(x) return x:select(1, 0) end,
    nn.Linear{opt.dim, opt.dim, name = "pooler"}, nn.Tanh{}, nn.Dropout{opt.dropout},
    nn.Linear{opt.dim, opt.classes, name = "classifier"},
  },
  loss      = nn.CrossEntropyLoss{},
  batch     = { micro_batches = 4, micro_batch_size = opt.rows },
  optimizer = { "adamw", lr = 2e-5 },
  data      = function()  -- random tokens and a random class for each row; put your own texts here
    return F.randint(opt.vocab, {opt.rows, opt.seq}), F.randint(opt.classes, {opt.rows})
  end,
  steps     = 20,
}
