"""models/unet.lua in PyTorch."""
import torch
from torch import nn
from torch.nn import functional as F

OPTIONS = {"image": 16}

IMAGE, WIDTH, DEPTH = 16, 8, 2

# A module inside a module here, a place in the list there.
NAMES = {r"^1\.": "38.", r"^0\.up": "30", r"^0\.inside\.up": "22"}
NAMES.update({r"^0\.%s\.(\d)" % name: lambda match, first=first: str(first + int(match[1])) for name, first in (
    ("before", 0), (r"inside\.before", 8), (r"inside\.inside", 16), (r"inside\.after", 24), ("after", 32))})


def double(start, end):
    def half(a, b):
        return [nn.Conv2d(a, b, 3, padding=1, bias=False), nn.BatchNorm2d(b), nn.ReLU()]
    return [*half(start, end), *half(end, end)]


class Level(nn.Module):
    def __init__(self, i):
        super().__init__()
        width = WIDTH * 2**i
        self.before = nn.Sequential(*double(width // 2 if i else 1, width))
        self.inside = Level(i + 1) if i + 1 < DEPTH else nn.Sequential(*double(width, 2 * width))
        self.up = nn.ConvTranspose2d(2 * width, width, 2, 2)
        self.after = nn.Sequential(*double(2 * width, width))

    def forward(self, x):
        x = self.before(x)
        y = self.up(self.inside(F.max_pool2d(x, 2)))
        return self.after(torch.cat([y, x], 1))


model = nn.Sequential(Level(0), nn.Conv2d(WIDTH, 1, 1))


def loss(output, target):
    p = output.sigmoid()
    dice = 1 - (2 * (p * target).sum() + 1) / (p.sum() + target.sum() + 1)
    return dice + F.binary_cross_entropy_with_logits(output, target)


def optimizer(model):
    return torch.optim.Adam(model.parameters(), lr=2e-3)


def batch(i):
    at = torch.rand(8, 3, 1, 1)
    y, x = torch.arange(IMAGE).view(1, IMAGE, 1) / IMAGE, torch.arange(IMAGE).view(1, 1, IMAGE) / IMAGE
    distance = (y - at[:, 0])**2 + (x - at[:, 1])**2
    mask = (distance < 0.02 + 0.06 * at[:, 2]).float().unsqueeze(1)
    return mask + 0.5 * torch.randn(8, 1, IMAGE, IMAGE), mask
