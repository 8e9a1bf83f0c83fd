-- Llama's architecture (Touvron et al., 2023): RMSNorm, rotary positions, grouped queries, SwiGLU. By default it is
-- small and trains on the bytes of the licence texts that every Debian machine has. Its tensors have the names of
-- LlamaForCausalLM of the package transformers, so published weights can be loaded with --weights.map=llama.
local strata = require "strata"
local nn = strata.nn

-- The published models. `1b` is TinyLlama 1.1B, `7b` Llama 2, `8b` and `70b` Llama 3, `405b` Llama 3.1 (whose scaling
-- of the rotary positions for texts of more than 8,192 tokens is left out). `small` is the default.
local published = {
  small    = { dim = 128, depth = 4, heads = 4, kv_heads = 2, hidden = 352, vocab = 256, theta = 10000 },
  ["1b"]   = { dim = 2048, depth = 22, heads = 32, kv_heads = 4, hidden = 5632, vocab = 32000, theta = 10000 },
  ["7b"]   = { dim = 4096, depth = 32, heads = 32, kv_heads = 32, hidden = 11008, vocab = 32000, theta = 10000 },
  ["8b"]   = { dim = 4096, depth = 32, heads = 32, kv_heads = 8, hidden = 14336, vocab = 128256, theta = 500000 },
  ["70b"]  = { dim = 8192, depth = 80, heads = 64, kv_heads = 8, hidden = 28672, vocab = 128256, theta = 500000 },
  ["405b"] = { dim = 16384, depth = 126, heads = 128, kv_heads = 8, hidden = 53248, vocab = 128256, theta = 500000 },
}

-- Options, each of which is also a flag (--path=...):
--   variant   the row of the table above that the options below are taken from, unless they are given
local variant = strata.options { variant = "small" }.variant
local of = published[variant] or error("--variant is small, 1b, 7b, 8b, 70b or 405b, not " .. variant)

--   path      a text, or a folder of texts, to train on
--   texts     in place of it a file of JSON lines, whose texts are packed: several in a row, none sees another
--   seq       tokens that the model sees at once
--   eps       small number that RMSNorm adds to avoid a division by 0
--   vocab     number of different tokens; 256 = bytes
--   dim       width: numbers per token
--   depth     Transformer layers
--   heads     attention heads for queries; dim must be a multiple
--   kv_heads  attention heads for keys and values; heads must be a multiple
--   hidden    width inside the feed-forward part of a layer
--   theta     base of the rotary positions
local opt = strata.options {
  path = "/usr/share/common-licenses", texts = "", seq = 64, eps = 1e-5, vocab = of.vocab, dim = of.dim,
  depth = of.depth, heads = of.heads, kv_heads = of.kv_heads, hidden = of.hidden, theta = of.theta,
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

local packed = opt.texts ~= "" and strata.data.jsonl{opt.texts}:pack{opt.seq, long="split"}

return strata.job {
  name   = "llama",
  layers = {
    packed and strata.documents{} or {},
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
    train = packed or strata.data.text{opt.path, length=opt.seq},
    test  = strata.data.text{opt.path, length=opt.seq, split="test"},
  },
  steps       = 200,
}
