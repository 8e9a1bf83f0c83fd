"""models/convnext.lua in PyTorch."""
import torch
from torch import nn
from torch.nn import functional as F

OPTIONS = {"batch.micro_batch_size": 4}
DATA = "return F.rand{4, 1, 8, 8}, F.randint(10, {4})"

CHANNELS, STEM, DEPTHS, DIMS, CLASSES = 1, 1, [2, 2], [32, 64], 10


class ChannelNorm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim, eps=1e-6)

    def forward(self, x):
        return self.norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.depthwise = nn.Conv2d(dim, dim, 7, padding=3, groups=dim)
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)
        self.scale = nn.Parameter(torch.full((dim,), 1e-6))

    def forward(self, x):
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.scale * self.down(F.gelu(self.up(y)))
        return x + y.permute(0, 3, 1, 2)


def stage(i):
    if i == 0:
        first = [nn.Conv2d(CHANNELS, DIMS[0], STEM, STEM), ChannelNorm(DIMS[0])]
    else:
        first = [ChannelNorm(DIMS[i - 1]), nn.Conv2d(DIMS[i - 1], DIMS[i], 2, 2)]
    return first + [Block(DIMS[i]) for _ in range(DEPTHS[i])]


model = nn.Sequential(
    *(layer for i in range(len(DIMS)) for layer in stage(i)),
    nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LayerNorm(DIMS[-1], eps=1e-6),
    nn.Linear(DIMS[-1], CLASSES),
)
loss = nn.CrossEntropyLoss()


def optimizer(model):
    return torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.05)


def batch(i):
    return torch.rand(4, 1, 8, 8), torch.randint(10, (4,))
