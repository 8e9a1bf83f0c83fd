-- The Transformer of PyTorch's tutorial on pipeline parallelism: 8 decoder layers of width 512 with 8 heads, and a
-- vocabulary of 10,000 tokens. As in the tutorial, each layer is called as layer(h, h), and the sequence is dim 0.
--   tools/strata train models/transformer.lua --pipe=2 --schedule=gpipe --micro_batches=4 --losses
-- The tutorial has --seq=500. With --model=2, two ranks share the work of each layer.
local strata = require "strata"
local nn = strata.nn

-- Options, each of which is also a flag (--seq=...):
--   seq      tokens per sequence
--   vocab    number of different tokens
--   dim      width: numbers per token
--   heads    attention heads; dim must be a multiple
--   depth    decoder layers
--   dropout  share of values that a training step sets to 0
local opt = strata.options { seq = 32, vocab = 10000, dim = 512, heads = 8, depth = 8, dropout = 0.1 }

return strata.job {
  name   = "transformer",
  layers = {
    nn.Embedding{opt.vocab, opt.dim, split="row"},
    strata.times(opt.depth, function()
      return nn.TransformerDecoderLayer{opt.dim, opt.heads, dropout=opt.dropout}
    end),
    nn.LayerNorm{opt.dim},
    nn.Linear{opt.dim, opt.vocab, split="column"},
  },
  loss      = nn.CrossEntropyLoss{class_dim=-1},  -- a row of scores for each token
  parallel  = { pipe = 2 },
  batch     = { size = 32, micro_batches = 4 },
  optimizer = { "adam", lr = 1e-3 },
  data      = { train = strata.data.tokens{opt.vocab, length=opt.seq, samples=320} },
  steps     = 20,
}
