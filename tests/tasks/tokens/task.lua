-- A GPT on tokens as nanoGPT writes them: train.bin and val.bin of uint16.
local strata = require "strata"
local nn, F = strata.nn, strata.F
local dim, length, vocab = 64, 32, 64

local Embed = strata.layer {
  name = "Embed",
  init = function(self) self.wte, self.wpe = nn.Embedding{vocab, dim}, nn.Embedding{length, dim} end,
  forward = function(self, x) return self.wte(x) + self.wpe(F.arange(x:size(1))) end,
}

return strata.job {
  layers = {
    Embed{},
    strata.times(4, function()
      return nn.TransformerEncoderLayer{dim, 4, dim_feedforward = 4 * dim, activation = "gelu", dropout = 0.1,
        batch_first = true, norm_first = true, causal = true}
    end),
    nn.LayerNorm{dim}, nn.Linear{dim, vocab, bias = false},
  },
  loss        = nn.CrossEntropyLoss{},
  batch       = { micro_batches = 4, micro_batch_size = 8 },
  optimizer   = { "adamw", lr = 2e-3, betas = {0.9, 0.95}, groups = {{dims = "<2", weight_decay = 0}} },
  lr_schedule = { "cosine", warmup = 10 },
  clip        = 1.0,
  data        = { train = strata.data.token_file{"train.bin", length = length},
                  test = strata.data.token_file{"val.bin", length = length} },
  steps       = 80,
}
