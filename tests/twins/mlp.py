"""models/mlp.lua in PyTorch."""
import torch
from torch import nn

DATA = "return F.rand{16, 1, 8, 8}, F.randint(10, {16})"

WIDTH, DEPTH, DROPOUT = 128, 2, 0.2


def block():
    return [nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH), nn.ReLU(), nn.Dropout(DROPOUT)]


model = nn.Sequential(
    nn.Flatten(), nn.Linear(64, WIDTH), nn.ReLU(),
    *(layer for _ in range(DEPTH) for layer in block()),
    nn.Linear(WIDTH, 10),
)
loss = nn.CrossEntropyLoss()


def optimizer(model):
    return torch.optim.Adam(model.parameters(), lr=1e-3)


def batch(i):
    return torch.rand(16, 1, 8, 8), torch.randint(10, (16,))
