-- The decoder Transformer of the well-known pipeline walk-through: 8 decoder layers of width 512
-- with 8 heads, a vocabulary of 10,000. Each layer is called as layer(h, h) and keeps PyTorch's
-- sequence-first layout, as there.
--   tools/strata train models/transformer.lua --pipe=2 --schedule=gpipe --micro_batches=4 --losses
-- --seq=500 gives the walk-through's size. With --model=2 two ranks share each layer.
local strata = require "strata"
local nn = strata.nn
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
  loss      = nn.CrossEntropyLoss{},
  parallel  = { pipe = 2 },
  batch     = { size = 32, micro_batches = 4 },
  optimizer = { "adam", lr = 1e-3 },
  data      = { train = strata.data.tokens{opt.vocab, length=opt.seq, samples=320} },
  steps     = 20,
}
