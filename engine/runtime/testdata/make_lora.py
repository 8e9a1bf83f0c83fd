"""Writes lora.json: the losses of 20 steps of PyTorch 2.11 that train low-rank parts beside frozen weights, which are
dense, or in NF4 or int8 as bitsandbytes has them (engine/layers/testdata/make_packed.py compares codes and values).

    python make_lora.py > lora.json

What the package PEFT computes for a weight W: W x + b + alpha / rank * B (A x), with A as the weight of a Linear begins
and B = 0. Layer i is built after torch.manual_seed(1234 + i), and A after the seed of low_rank.cc.
"""

import json
import math

import torch
from torch import nn

RANK, ALPHA, STEPS, SEED = 3, 6, 20, 1234


def mixed(state):
    """SplitMix64: engine/base/split_mix.h."""
    word = state + 0x9E3779B97F4A7C15 & 2**64 - 1
    word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 & 2**64 - 1
    word = (word ^ word >> 27) * 0x94D049BB133111EB & 2**64 - 1
    return word ^ word >> 31


NF4 = torch.tensor([
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
])


def few_bits(weight, base):
    """The weight as it is read back from a base of this kind."""
    if base == "nf4":
        blocks = [block / block.abs().max() for block in weight.flatten().split(64)]
        nearest = [NF4[torch.bucketize(block, (NF4[1:] + NF4[:-1]) / 2)] for block in blocks]
        largest = [block.abs().max() for block in weight.flatten().split(64)]
        return torch.cat([n * m for n, m in zip(nearest, largest)]).view_as(weight)
    if base == "int8":
        largest = weight.abs().max(1, keepdim=True).values
        return (weight * (127 / largest)).round() * largest / 127
    return weight


class LowRank(nn.Module):
    def __init__(self, weight, seed, name):
        super().__init__()
        for character in name:
            seed = mixed(seed ^ ord(character))
        torch.manual_seed(seed)
        self.a = nn.Parameter(torch.empty(RANK, weight.shape[1]))
        nn.init.kaiming_uniform_(self.a, a=math.sqrt(5))
        self.b = nn.Parameter(torch.zeros(weight.shape[0], RANK))

    def forward(self, weight):
        return weight + ALPHA / RANK * self.b @ self.a


def adamw(p, m, v, g, step, lr=0.01, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01):
    """torch.optim.AdamW with its defaults."""
    p.mul_(1 - lr * weight_decay)
    m.lerp_(g, 1 - betas[0])
    v.mul_(betas[1]).addcmul_(g, g, value=1 - betas[1])
    p.addcdiv_(m / (1 - betas[0] ** step), (v / (1 - betas[1] ** step)).sqrt() + eps, value=-lr)


def sequences(i):
    x = torch.sin((torch.arange(4 * 3 * 6, dtype=torch.float) + 31 * i) * 0.37)
    return x.view(4, 3, 6), ((torch.arange(12) * 7 + 3 * i) % 5).view(4, 3)


def losses_of(base):
    makers = [
        lambda: nn.Linear(6, 8),
        lambda: nn.TransformerEncoderLayer(8, 2, 12, dropout=0.0, batch_first=True),
        lambda: nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)),
        lambda: nn.Linear(8, 5),
    ]
    layers = []
    for i, make in enumerate(makers):
        torch.manual_seed(SEED + i)
        layers.append(make())
    for layer in layers:
        for p in layer.parameters():
            p.requires_grad_(False)
            if p.dim() == 2 and layer is not layers[-1]:
                p.copy_(few_bits(p, base))
    for layer, module, weight in [
        (1, "self_attn", "in_proj_weight"),
        (1, "self_attn.out_proj", "weight"),
        (1, "linear1", "weight"),
        (2, "2", "weight"),
        (3, "", "weight"),
    ]:
        owner = layers[layer].get_submodule(module)
        name = (module + "." if module else "") + weight
        nn.utils.parametrize.register_parametrization(
            owner, weight, LowRank(getattr(owner, weight), SEED + layer, name))
    model = nn.Sequential(*layers)
    learns = [p for p in model.parameters() if p.requires_grad]
    moments = [(torch.zeros_like(p), torch.zeros_like(p)) for p in learns]
    losses = []
    for step in range(STEPS):
        batches = [sequences(4 * step + m) for m in range(4)]
        outputs = model(torch.cat([x for x, _ in batches])).flatten(0, 1)
        loss = nn.functional.cross_entropy(outputs, torch.cat([y for _, y in batches]).flatten())
        gradients = torch.autograd.grad(loss, learns)
        with torch.no_grad():
            for p, (m, v), g in zip(learns, moments, gradients):
                adamw(p, m, v, g, step + 1)
        losses.append(loss.item())
    return losses


def main():
    torch.set_num_threads(1)
    print(json.dumps({
base: losses_of(base) for base in ("dense", "nf4", "int8")}))


if __name__ == "__main__":
    main()
