"""models/two_tower.lua in PyTorch."""
import torch
from torch import nn
from torch.nn import functional as F

QUERIES, ITEMS, DIM, EMBEDDING, TEMPERATURE = 24, 40, 64, 32, 0.1


class Both(nn.Module):
    def __init__(self, query, item):
        super().__init__()
        self.query, self.item = query, item

    def forward(self, given):
        q, d = given
        return self.query(q), self.item(d)


def linear(size):
    return nn.Sequential(nn.ReLU(), nn.Linear(DIM, size))


model = nn.Sequential(
    Both(nn.Linear(QUERIES, DIM), nn.Linear(ITEMS, DIM)),
    Both(linear(DIM), linear(DIM)), Both(linear(DIM), linear(DIM)), Both(linear(EMBEDDING), linear(EMBEDDING)),
)


def loss(output, target):
    q, d = output
    scores = F.normalize(q, dim=1) @ F.normalize(d, dim=1).t() / TEMPERATURE
    return (F.cross_entropy(scores, target) + F.cross_entropy(scores.t(), target)) / 2


def optimizer(model):
    return torch.optim.AdamW(model.parameters(), lr=2e-3)


def batch(i):
    cause = torch.randn(32, 8)
    views = [cause.tile(1, size // 8) + 0.1 * torch.randn(32, size) for size in (QUERIES, ITEMS)]
    return views, torch.arange(32)
