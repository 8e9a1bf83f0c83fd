"""models/tabular.lua in PyTorch."""
import torch
from torch import nn

NUMBERS, CATEGORIES, DIM, DEPTH = 6, [8, 5], 64, 3


class Row(nn.Module):
    def __init__(self):
        super().__init__()
        self.numbers = nn.Linear(NUMBERS, DIM)
        self.categories = nn.ModuleList(nn.Embedding(size, DIM) for size in CATEGORIES)

    def forward(self, given):
        numbers, categories = given
        x = self.numbers(numbers)
        for i, embedding in enumerate(self.categories):
            x = x + embedding(categories[:, i])
        return x


class Residual(nn.Sequential):
    def forward(self, x):
        return x + super().forward(x)


model = nn.Sequential(
    Row(),
    *(Residual(nn.LayerNorm(DIM), nn.Linear(DIM, 2 * DIM), nn.SiLU(), nn.Linear(2 * DIM, DIM)) for _ in range(DEPTH)),
    nn.LayerNorm(DIM), nn.Linear(DIM, 1),
)
loss = nn.HuberLoss()


def optimizer(model):
    return torch.optim.AdamW(model.parameters(), lr=3e-3)


def batch(i):
    numbers = torch.randn(32, NUMBERS)
    categories = torch.stack([torch.randint(size, (32,)) for size in CATEGORIES], 1)
    y = numbers[:, 0].sin() + numbers[:, 1] * (categories[:, 0] % 3) / 2
    return [numbers, categories], y.unsqueeze(1)
