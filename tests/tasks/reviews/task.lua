-- Sorts texts of many lengths into classes: a small BERT, whose padding nobody attends to.
local strata = require "strata"
local nn, F = strata.nn, strata.F
local dim, length = 32, 24
local rows = strata.data.jsonl{"reviews.jsonl", text = "text", target = "verdict", length = length}
local train, test = rows:split{0.8, 0.2}

local Embed = strata.layer {
  name = "Embed",
  init = function(self) self.words, self.places = nn.Embedding{256, dim}, nn.Embedding{length, dim} end,
  forward = function(self, x) return self.words(x) + self.places(F.arange(length)), x:eq(0) end,
}
local Block = strata.layer {
  name = "Block",
  init = function(self) self.layer = nn.TransformerEncoderLayer{dim, 4, dim_feedforward = 64, batch_first = true} end,
  forward = function(self, x, padding) return self.layer(x, {src_key_padding_mask = padding}), padding end,
}
local First = strata.layer { name = "First", forward = function(self, x) return x:select(1, 0) end }

return strata.job {
  layers    = { Embed{}, strata.times(2, function() return Block{} end), First{}, nn.Linear{dim, 2} },
  loss      = nn.CrossEntropyLoss{},
  batch     = { micro_batches = 2, micro_batch_size = 16 },
  optimizer = { "adamw", lr = 2e-3 },
  data      = { train = train, test = test },
  eval      = { metric = "accuracy" },
  epochs    = 8,
}
