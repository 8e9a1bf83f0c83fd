-- A small BERT (Devlin et al., 2018) that classifies sentences of different lengths. A mask of the padding passes
-- through the layers together with the tokens. The sentences are made up: the class is the word that comes most often.
-- For published weights, see bert.lua.
local strata = require "strata"
local nn, F = strata.nn, strata.F

-- Options, each of which is also a flag (--vocab=...):
--   vocab    number of different words; word 0 is the padding
--   seq      words of the longest sentence
--   dim      width: numbers per word
--   depth    Transformer layers
--   heads    attention heads; dim must be a multiple
--   classes  number of classes
--   dropout  share of values that a training step sets to 0
local opt = strata.options { vocab = 32, seq = 24, dim = 64, depth = 3, heads = 4, classes = 4, dropout = 0.0 }

local Embeddings = strata.layer {
  name = "Embeddings",
  init = function(self)
    self.word_embeddings = nn.Embedding{opt.vocab, opt.dim, padding_idx=0}
    self.position_embeddings = nn.Embedding{opt.seq, opt.dim}
    self.LayerNorm = nn.LayerNorm{opt.dim, eps=1e-12}
    self.dropout = nn.Dropout{opt.dropout}
  end,
  forward = function(self, tokens)
    local x = self.word_embeddings(tokens) + self.position_embeddings(F.arange(tokens.shape[2]))
    return self.dropout(self.LayerNorm(x)), tokens:eq(0)
  end,
}

local Block = strata.layer {
  name = "Block",
  init = function(self)
    self.layer = nn.TransformerEncoderLayer{opt.dim, opt.heads, dim_feedforward=4 * opt.dim, dropout=opt.dropout,
      activation="gelu", batch_first=true}
  end,
  forward = function(self, x, padding) return self.layer(x, {src_key_padding_mask=padding}), padding end,
}

local Pooler = strata.layer {
  name = "Pooler",
  init = function(self) self.dense = nn.Linear{opt.dim, opt.dim} end,
  forward = function(self, x) return self.dense(x:select(1, 0)):tanh() end,
}

local function sentences(i)
  local label = F.randint(opt.classes, {16})
  local words = F.randint(1, opt.vocab, {16, opt.seq})
  words = F.where(F.rand{16, opt.seq}:lt(0.5), label:unsqueeze(1) + 1, words)
  local length = F.randint(opt.seq / 2, opt.seq + 1, {16, 1})
  return words * F.arange(opt.seq):lt(length), label
end

return strata.job {
  name   = "sentences",
  layers = {
    Embeddings{},
    strata.times(opt.depth, function() return Block{} end),
    Pooler{},
    nn.Linear{opt.dim, opt.classes},
  },
  loss      = nn.CrossEntropyLoss{},
  batch     = { micro_batches = 2, micro_batch_size = 16 },
  optimizer = { "adamw", lr = 5e-4 },
  data      = sentences,
  steps     = 100,
}
