-- Llama's blocks on text files, by a tokenizer of Hugging Face.
local strata = require "strata"
local nn = strata.nn
local dim, vocab = 64, 600
local function text(split)
  return strata.data.text{"books", tokenizer = "tokenizer.json", length = 32, split = split}
end

local function block()
  return {
    nn.Residual{nn.RMSNorm{dim}, nn.GroupedQueryAttention{dim, 4, num_kv_heads = 2}},
    nn.Residual{nn.RMSNorm{dim}, nn.SwiGLU{dim, 176}},
  }
end

return strata.job {
  layers    = { nn.Embedding{vocab, dim}, strata.times(3, block), nn.RMSNorm{dim}, nn.Linear{dim, vocab, bias=false} },
  loss      = nn.CrossEntropyLoss{},
  batch     = { micro_batches = 2, micro_batch_size = 8 },
  optimizer = { "adamw", lr = 3e-3 },
  data      = { train = text "train", test = text "test" },
  steps     = 60,
}
