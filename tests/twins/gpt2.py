"""models/gpt2.lua in PyTorch, small."""
import torch
from torch import nn
from torch.nn import functional as F

OPTIONS = {"vocab": 61, "seq": 16, "dim": 32, "heads": 4, "depth": 2, "dropout": 0, "batch.micro_batch_size": 4}
DATA = "return F.randint(61, {4, 16}), F.randint(61, {4, 16})"
CLIP = 1.0

VOCAB, SEQ, DIM, HEADS, DEPTH = 61, 16, 32, 4, 2


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln, self.attn = nn.LayerNorm(DIM), nn.MultiheadAttention(DIM, HEADS, batch_first=True)

    def forward(self, x):
        y = self.ln(x)
        mask = nn.Transformer.generate_square_subsequent_mask(SEQ)
        return x + self.attn(y, y, y, attn_mask=mask, is_causal=True, need_weights=False)[0]


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln, self.c_fc, self.c_proj = nn.LayerNorm(DIM), nn.Linear(DIM, 4 * DIM), nn.Linear(4 * DIM, DIM)

    def forward(self, x):
        return x + self.c_proj(F.gelu(self.c_fc(self.ln(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCAB, DIM), nn.Embedding(SEQ, DIM)
        self.h = nn.ModuleList(nn.ModuleDict({"attn": Attention(), "mlp": Mlp()}) for _ in range(DEPTH))
        self.ln_f = nn.LayerNorm(DIM)
        for table in (self.wte, self.wpe):
            nn.init.normal_(table.weight, 0, 0.02)

    def forward(self, x):
        x = self.wte(x) + self.wpe.weight
        for layer in self.h:
            x = layer["mlp"](layer["attn"](x))
        return F.linear(self.ln_f(x), self.wte.weight)


model = nn.Sequential(Gpt2())
NAMES = {r"^0\.": ""}


def loss(output, target):
    return F.cross_entropy(output.flatten(0, 1), target.flatten())


def optimizer(model):
    return torch.optim.AdamW(model.parameters(), lr=3e-4)


def batch(i):
    return torch.randint(VOCAB, (4, SEQ)), torch.randint(VOCAB, (4, SEQ))
