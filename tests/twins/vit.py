"""models/vit.lua in PyTorch."""
import torch
from torch import nn

OPTIONS = {"batch.micro_batch_size": 8}
DATA = "return F.rand{8, 1, 8, 8}, F.randint(10, {8})"

IMAGE, PATCH, CHANNELS, DIM, DEPTH, HEADS, CLASSES = 8, 2, 1, 64, 4, 4, 10


class Tokens(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.conv_proj = nn.Conv2d(CHANNELS, dim, PATCH, PATCH)
        self.class_token = nn.Parameter(torch.zeros(1, 1, dim))
        self.position = nn.Parameter(torch.empty(1, (IMAGE // PATCH)**2 + 1, dim).normal_(0, 0.02))

    def forward(self, image):
        x = self.conv_proj(image).flatten(2).transpose(1, 2)
        return torch.cat([self.class_token.expand(len(x), -1, -1), x], 1) + self.position


class First(nn.Module):
    def forward(self, x):
        return x[:, 0]


model = nn.Sequential(
    Tokens(DIM),
    *(nn.TransformerEncoderLayer(DIM, HEADS, 4 * DIM, dropout=0, activation="gelu", batch_first=True,
                                 norm_first=True) for _ in range(DEPTH)),
    nn.LayerNorm(DIM),
    First(),
    nn.Linear(DIM, CLASSES),
)
loss = nn.CrossEntropyLoss()


def optimizer(model):
    return torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05)


def batch(i):
    return torch.rand(8, 1, 8, 8), torch.randint(10, (8,))
