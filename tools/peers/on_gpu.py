"""PyTorch on one GPU, beside Strata in tools/gpu_check.

    on_gpu.py alexnet|transformer|gpt2|gpt2_32|llama|resnet float32|tf32|bf16 MODE [STEPS]

MODE is eager or compiled, and for images also eager_channels_last or compiled_channels_last. The models, sizes and
optimizers are those of models/*.lua. Prints [median seconds of a step, peak bytes].
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


class LlamaBlock(nn.Module):
    def __init__(self, width, heads, kept, hidden):
        super().__init__()
        self.head = width // heads
        self.first, self.second = nn.RMSNorm(width, 1e-5), nn.RMSNorm(width, 1e-5)
        sizes = {"q": (width, width), "k": (width, kept * self.head), "v": (width, kept * self.head),
                 "o": (width, width), "gate": (width, hidden), "up": (width, hidden), "down": (hidden, width)}
        for name, (inner, outer) in sizes.items():
            setattr(self, name, nn.Linear(inner, outer, bias=False))

    def forward(self, x, cosine, sine):
        def heads(t):
            return t.unflatten(2, (-1, self.head)).transpose(1, 2)

        def turned(t):
            a, b = t.chunk(2, -1)
            return torch.cat([a * cosine - b * sine, b * cosine + a * sine], -1).to(t.dtype)
        y = self.first(x)
        q, k, v = turned(heads(self.q(y))), turned(heads(self.k(y))), heads(self.v(y))
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.o(seen.transpose(1, 2).flatten(2))
        y = self.second(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self, words=32000, width=2048, depth=22, heads=32, kept=4, hidden=5632, length=2048):
        super().__init__()
        self.words, self.norm = nn.Embedding(words, width), nn.RMSNorm(width, 1e-5)
        self.blocks = nn.ModuleList(LlamaBlock(width, heads, kept, hidden) for _ in range(depth))
        self.head = nn.Linear(width, words, bias=False)
        half = width // heads // 2
        angle = torch.arange(length).unsqueeze(1) * 10000.0 ** (-torch.arange(half) / half)
        self.register_buffer("cosine", angle.cos())
        self.register_buffer("sine", angle.sin())

    def forward(self, x):
        x = self.words(x)
        for block in self.blocks:
            x = block(x, self.cosine, self.sine)
        return self.head(self.norm(x))


class Bottleneck(nn.Module):
    def __init__(self, outer, inner, stride):
        super().__init__()

        def part(i, o, size, stride=1):
            return [nn.Conv2d(i, o, size, stride, size // 2, bias=False), nn.BatchNorm2d(o)]
        self.body = nn.Sequential(*part(outer, inner, 1), nn.ReLU(), *part(inner, inner, 3, stride), nn.ReLU(),
                                  *part(inner, 4 * inner, 1))
        same = outer == 4 * inner and stride == 1
        self.way = nn.Identity() if same else nn.Sequential(*part(outer, 4 * inner, 1, stride))

    def forward(self, x):
        return F.relu(self.body(x) + self.way(x))


def resnet50():
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    outer = 64
    for group, blocks in enumerate([3, 4, 6, 3]):
        for block in range(blocks):
            layers.append(Bottleneck(outer, 64 << group, 2 if group and not block else 1))
            outer = 256 << group
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(outer, 1000))


def work(name):
    """Module, input, target, loss, optimizer."""
    sizes = {"gpt2": (Gpt2, 50257, 8, 1024), "gpt2_32": (Gpt2, 50257, 32, 1024), "llama": (Llama, 32000, 2, 2048)}
    if name in sizes:
        model, words, rows, tokens = sizes[name]
        x, y = torch.randint(words, (2, rows, tokens), device="cuda")
        return (model(), x, y, lambda out, y: F.cross_entropy(out.flatten(0, 1), y.flatten()),
                lambda p: torch.optim.AdamW(p, 3e-4, fused=True))
    if name == "resnet":
        return (resnet50(), torch.randn(128, 3, 224, 224, device="cuda"), torch.randint(1000, (128,), device="cuda"),
                F.cross_entropy, lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, weight_decay=1e-4, fused=True))
    one = peer.alexnet() if name == "alexnet" else peer.transformer(tokens=500)
    rows = 128 if name == "alexnet" else 16
    return nn.Sequential(*one.layers), one.x(rows).cuda(), one.y(rows).cuda(), one.loss, one.optimizer


def main(name, precision, mode, steps=15):
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
    module, x, y, loss, optimizer = work(name)
    module.cuda()
    if mode.endswith("channels_last"):
        module, x = module.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    update = optimizer(module.parameters())
    run = torch.compile(module) if mode.startswith("compiled") else module
    half = torch.autocast("cuda", torch.bfloat16) if precision == "bf16" else contextlib.nullcontext()
    seconds = []
    for _ in range(int(steps)):
        start = time.monotonic()
        with half:
            out = run(x)
        loss(out.float(), y).backward()
        torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        update.step()
        update.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        seconds.append(time.monotonic() - start)
    print(json.dumps([statistics.median(seconds[len(seconds) // 3:]), torch.cuda.max_memory_allocated()]))


main(*sys.argv[1:])
