import pathlib
import torch
from tokenizers import Tokenizer
from torch import nn

dim, vocab, heads, kv_heads, length = 64, 600, 4, 2, 32
text = "".join(path.read_text() for path in sorted(pathlib.Path("books").iterdir()))
tokens = torch.tensor(Tokenizer.from_file("tokenizer.json").encode(text).ids)
cut = int(0.9 * len(tokens))


def batch(part, size=16):
    starts = torch.randint(len(part) - length, (size,))
    return (torch.stack([part[i:i + length] for i in starts]),
            torch.stack([part[i + 1:i + 1 + length] for i in starts]))


def rotated(x):
    half = x.size(-1) // 2
    angles = torch.arange(x.size(-2))[:, None] * 10000.0 ** (-torch.arange(half) / half)
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], -1)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.o = nn.Linear(dim, dim, bias=False), nn.Linear(dim, dim, bias=False)
        self.kv = nn.Linear(dim, 2 * kv_heads * dim // heads, bias=False)

    def forward(self, x):
        q = self.q(x).unflatten(2, (heads, -1)).transpose(1, 2)
        k, v = self.kv(x).unflatten(2, (2 * kv_heads, -1)).transpose(1, 2).chunk(2, 1)
        y = nn.functional.scaled_dot_product_attention(rotated(q), rotated(k), v, is_causal=True, enable_gqa=True)
        return self.o(y.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.attention, self.norm2 = nn.RMSNorm(dim), Attention(), nn.RMSNorm(dim)
        self.gate, self.up = nn.Linear(dim, 176, bias=False), nn.Linear(dim, 176, bias=False)
        self.down = nn.Linear(176, dim, bias=False)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        y = self.norm2(x)
        return x + self.down(nn.functional.silu(self.gate(y)) * self.up(y))


model = nn.Sequential(nn.Embedding(vocab, dim), *(Block() for _ in range(3)), nn.RMSNorm(dim),
                      nn.Linear(dim, vocab, bias=False))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for step in range(60):
    x, y = batch(tokens[:cut])
    loss = nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
