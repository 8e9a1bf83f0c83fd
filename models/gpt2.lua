-- GPT-2 (Radford et al., 2019). It computes the same as GPT2LMHeadModel of the package transformers. The defaults give
-- the smallest of the four published sizes. To import published weights, and to train on from them:
--   strata import gpt2/ --model=models/gpt2.lua --map=gpt2 -o gpt2.safetensors
--   strata train models/gpt2.lua --pipe=2 --weights=gpt2/ --weights.map=gpt2
local strata = require "strata"
local nn, F = strata.nn, strata.F

-- Options, each of which is also a flag (--vocab=...):
--   vocab    number of different tokens
--   seq      tokens that the model sees at once
--   dim      width: numbers per token
--   heads    attention heads; dim must be a multiple
--   depth    Transformer layers
--   dropout  share of values that a training step sets to 0
local opt = strata.options { vocab = 50257, seq = 1024, dim = 768, heads = 12, depth = 12, dropout = 0.1 }

-- A table of trained vectors. They begin small, since the last layer uses the same table for its scores.
local function Table(forward)
  return strata.layer {
    name = "Table",
    init = function(self, rows, dim)
      self.weight = self:parameter{rows, dim, init = function(w) w:normal_(0, 0.02) end}
    end,
    forward = forward,
  }
end
local Words = Table(function(self, x) return F.embedding(x, self.weight) end)
local Positions = Table(function(self, x) return x + F.embedding(strata.positions(x), self.weight) end)

return strata.job {
  name   = "gpt2",
  layers = {
    strata.tied{"wte", Words{opt.vocab, opt.dim, name = "wte"}},
    Positions{opt.seq, opt.dim, name = "wpe"},
    nn.Dropout{opt.dropout},
    strata.times(opt.depth, function(i)
      return {
        nn.Residual{
          nn.LayerNorm{opt.dim, name = "ln"},
          nn.MultiheadAttention{opt.dim, opt.heads, dropout = opt.dropout, batch_first = true, causal = true,
            split = "heads", name = "attn"},
          nn.Dropout{opt.dropout}, name = "h." .. i .. ".attn",
        },
        nn.Residual{
          nn.LayerNorm{opt.dim, name = "ln"},
          nn.Linear{opt.dim, 4 * opt.dim, split = "column", name = "c_fc"}, nn.GELU{approximate = "tanh"},
          nn.Linear{4 * opt.dim, opt.dim, split = "row", name = "c_proj"},
          nn.Dropout{opt.dropout}, name = "h." .. i .. ".mlp",
        },
      }
    end),
    nn.LayerNorm{opt.dim, name = "ln_f"},
    strata.tied{"wte", nn.Linear{opt.dim, opt.vocab, bias = false, name = "lm_head"}},
  },
  loss      = nn.CrossEntropyLoss{class_dim=-1},  -- a row of scores for each token
  batch     = { micro_batches = 4, micro_batch_size = 2 },
  optimizer = { "adamw", lr = 3e-4 },
  clip      = 1.0,
  data      = { train = strata.data.tokens{opt.vocab, length = opt.seq, samples = 64} },
  steps     = 20,
}
