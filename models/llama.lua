-- Llama's architecture (Touvron et al., 2023): RMSNorm, rotary positions, grouped queries, SwiGLU. By default it is
-- small and trains on the bytes of the licence texts that every Debian machine has. Its tensors have the names of
-- LlamaForCausalLM of the package transformers, so published weights can be loaded with --weights.map=llama.
local strata = require "strata"
local nn = strata.nn

-- Options, each of which is also a flag (--path=...):
--   path      a text, or a folder of texts, to train on
--   seq       tokens that the model sees at once
--   vocab     number of different tokens; 256 = bytes
--   dim       width: numbers per token
--   depth     Transformer layers
--   heads     attention heads for queries; dim must be a multiple
--   kv_heads  attention heads for keys and values; heads must be a multiple
--   hidden    width inside the feed-forward part of a layer
--   theta     base of the rotary positions
--   eps       small number that RMSNorm adds to avoid a division by 0
local opt = strata.options {
  path = "/usr/share/common-licenses", seq = 64, vocab = 256,
  dim = 128, depth = 4, heads = 4, kv_heads = 2, hidden = 352, theta = 10000, eps = 1e-5,
}

local Block = strata.layer {
  name = "Block",
  init = function(self)
    self.input_layernorm = nn.RMSNorm{opt.dim, eps=opt.eps}
    self.self_attn = nn.GroupedQueryAttention{opt.dim, opt.heads, num_kv_heads=opt.kv_heads, rope_theta=opt.theta}
    self.post_attention_layernorm = nn.RMSNorm{opt.dim, eps=opt.eps}
    self.mlp = nn.SwiGLU{opt.dim, opt.hidden}
  end,
  forward = function(self, x)
    x = x + self.self_attn(self.input_layernorm(x))
    return x + self.mlp(self.post_attention_layernorm(x))
  end,
}

return strata.job {
  name   = "llama",
  layers = {
    nn.Embedding{opt.vocab, opt.dim, name="embed_tokens"},
    strata.times(opt.depth, function(i) return Block{name="layers." .. i} end),
    nn.RMSNorm{opt.dim, eps=opt.eps, name="norm"},
    nn.Linear{opt.dim, opt.vocab, bias=false, name="lm_head"},
  },
  loss        = nn.CrossEntropyLoss{class_dim=-1},  -- a row of scores for each token
  batch       = { micro_batches = 4, micro_batch_size = 8 },
  optimizer   = { "adamw", lr = 1e-3, betas = {0.9, 0.95}, weight_decay = 0.1 },
  lr_schedule = { "cosine", warmup = 20, final = 0.1 },
  clip        = 1.0,
  data        = {
    train = strata.data.text{opt.path, length=opt.seq},
    test  = strata.data.text{opt.path, length=opt.seq, split="test"},
  },
  steps       = 200,
}
