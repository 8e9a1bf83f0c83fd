"""models/llama.lua in PyTorch."""
import torch
from torch import nn
from torch.nn import functional as F

OPTIONS = {"batch.micro_batch_size": 4, "seq": 16, "depth": 3, "lr_schedule": ["constant"]}
DATA = "return F.randint(256, {4, 16}), F.randint(256, {4, 16})"
CLIP = 1.0
NAMES = {r"^0\.": "embed_tokens.", r"^([1-3])\.": lambda found: "layers.%d." % (int(found[1]) - 1), r"^4\.": "norm.",
         r"^5\.": "lm_head."}

SEQ, VOCAB, DIM, DEPTH, HEADS, KV_HEADS, HIDDEN, THETA, EPS = 16, 256, 128, 3, 4, 2, 352, 10000, 1e-5


def rotate(x):
    half = x.shape[-1] // 2
    frequency = THETA ** (-torch.arange(half) / half)
    angle = torch.arange(x.shape[-2])[:, None] * frequency
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        size = DIM // HEADS
        self.q_proj, self.o_proj = nn.Linear(DIM, DIM, bias=False), nn.Linear(DIM, DIM, bias=False)
        self.k_proj = nn.Linear(DIM, KV_HEADS * size, bias=False)
        self.v_proj = nn.Linear(DIM, KV_HEADS * size, bias=False)

    def forward(self, x):
        q, k, v = (project(x).unflatten(2, (-1, DIM // HEADS)).transpose(1, 2)
                   for project in (self.q_proj, self.k_proj, self.v_proj))
        k, v = (part.repeat_interleave(HEADS // KV_HEADS, 1) for part in (rotate(k), v))
        y = F.scaled_dot_product_attention(rotate(q), k, v, is_causal=True)
        return self.o_proj(y.transpose(1, 2).flatten(2))


class SwiGLU(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate_proj, self.up_proj = nn.Linear(DIM, HIDDEN, bias=False), nn.Linear(DIM, HIDDEN, bias=False)
        self.down_proj = nn.Linear(HIDDEN, DIM, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.input_layernorm = nn.RMSNorm(DIM, eps=EPS)
        self.self_attn = Attention()
        self.post_attention_layernorm = nn.RMSNorm(DIM, eps=EPS)
        self.mlp = SwiGLU()

    def forward(self, x):
        x = x + self.self_attn(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))


model = nn.Sequential(
    nn.Embedding(VOCAB, DIM),
    *(Block() for _ in range(DEPTH)),
    nn.RMSNorm(DIM, eps=EPS),
    nn.Linear(DIM, VOCAB, bias=False),
)


def loss(output, target):
    return F.cross_entropy(output.flatten(0, 1), target.flatten())


def optimizer(model):
    return torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1)


def batch(i):
    return torch.randint(VOCAB, (4, SEQ)), torch.randint(VOCAB, (4, SEQ))
