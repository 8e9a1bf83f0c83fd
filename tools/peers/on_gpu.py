"""PyTorch on one GPU, beside Strata in tools/gpu_check.

    on_gpu.py alexnet|transformer|gpt2 float32|tf32|bf16 eager|compiled

The models, sizes and optimizers are those of models/*.lua. Prints [median seconds of a step, peak bytes].
"""

import contextlib
import json
import statistics
import sys
import time

import torch
from torch import nn

import peer

F = nn.functional


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        rows, length, width = x.shape
        split = self.qkv(self.first(x)).view(rows, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(*split, dropout_p=0.1 * self.training, is_causal=True)
        x = x + F.dropout(self.out(seen.transpose(1, 2).reshape(x.shape)), 0.1, self.training)
        wide = F.gelu(self.wide(self.second(x)), approximate="tanh")
        return x + F.dropout(self.narrow(wide), 0.1, self.training)


class Gpt2(nn.Module):
    def __init__(self, words=50257, length=1024, width=768, heads=12, depth=12):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Parameter(torch.zeros(length, width))
        self.blocks = nn.Sequential(*[Block(width, heads) for _ in range(depth)])
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        x = F.dropout(self.words(x) + self.places, 0.1, self.training)
        return F.linear(self.norm(self.blocks(x)), self.words.weight)


def work(name):
    """Module, input, target, loss, optimizer."""
    if name == "gpt2":
        x, y = torch.randint(50257, (2, 8, 1024), device="cuda")
        return (Gpt2(), x, y, lambda out, y: F.cross_entropy(out.flatten(0, 1), y.flatten()),
                lambda p: torch.optim.AdamW(p, 3e-4, fused=True))
    one = peer.alexnet() if name == "alexnet" else peer.transformer(tokens=500)
    rows = 128 if name == "alexnet" else 16
    return nn.Sequential(*one.layers), one.x(rows).cuda(), one.y(rows).cuda(), one.loss, one.optimizer


def main(name, precision, mode):
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
    module, x, y, loss, optimizer = work(name)
    module.cuda()
    update = optimizer(module.parameters())
    run = torch.compile(module) if mode == "compiled" else module
    half = torch.autocast("cuda", torch.bfloat16) if precision == "bf16" else contextlib.nullcontext()
    seconds = []
    for _ in range(15):
        start = time.monotonic()
        with half:
            out = run(x)
        loss(out.float(), y).backward()
        torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        update.step()
        update.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        seconds.append(time.monotonic() - start)
    print(json.dumps([statistics.median(seconds[5:]), torch.cuda.max_memory_allocated()]))


main(*sys.argv[1:])
