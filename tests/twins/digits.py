"""models/digits.lua in PyTorch."""
import torch
from torch import nn

DATA = "return F.rand{16, 1, 8, 8}, F.randint(10, {16})"

model = nn.Sequential(
    nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(),
    nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
    nn.Flatten(),
    nn.Dropout(0.3), nn.Linear(1024, 64), nn.ReLU(),
    nn.Linear(64, 10),
)
loss = nn.CrossEntropyLoss()


def optimizer(model):
    return torch.optim.Adam(model.parameters(), lr=1e-3)


def batch(i):
    return torch.rand(16, 1, 8, 8), torch.randint(10, (16,))
