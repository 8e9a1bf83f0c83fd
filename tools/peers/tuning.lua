-- A Llama with low-rank parts on arrays of tokens, for tools/peers/tuning.py.
local strata = require "strata"
local nn = strata.nn
local opt = strata.options { folder = "", dim = 64, depth = 5, heads = 8, kv_heads = 4, hidden = 172, vocab = 512, rows = 4 }

local Block = strata.layer {
  name = "Block",
  init = function(self)
    self.input_layernorm = nn.RMSNorm{opt.dim, eps=1e-5}
    self.self_attn = nn.GroupedQueryAttention{opt.dim, opt.heads, num_kv_heads=opt.kv_heads}
    self.post_attention_layernorm = nn.RMSNorm{opt.dim, eps=1e-5}
    self.mlp = nn.SwiGLU{opt.dim, opt.hidden}
  end,
  forward = function(self, x)
    x = x + self.self_attn(self.input_layernorm(x))
    return x + self.mlp(self.post_attention_layernorm(x))
  end,
}

return strata.job {
  layers = {
    nn.Embedding{opt.vocab, opt.dim, name="embed_tokens"},
    strata.times(opt.depth, function(i) return Block{name="layers." .. i} end),
    nn.RMSNorm{opt.dim, eps=1e-5, name="norm"},
    nn.Linear{opt.dim, opt.vocab, bias=false, name="lm_head"},
  },
  loss      = nn.CrossEntropyLoss{class_dim=-1},
  weights   = { opt.folder .. "/base", map = "llama" },
  adapt     = { "lora", rank = 8, alpha = 16, layers = "_proj", from = opt.folder .. "/begin" },
  parallel  = { pipe = 1 },
  batch     = { micro_batches = 1, micro_batch_size = opt.rows },
  optimizer = { "adamw", lr = 1e-3, weight_decay = 0.01 },
  data      = { train = strata.data.npy{opt.folder .. "/x.npy", opt.folder .. "/y.npy", shuffle=false} },
}
