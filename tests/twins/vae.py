"""models/vae.lua in PyTorch."""
import torch
from torch import nn
from torch.nn import functional as F

DATA = "local x = F.rand{32, 1, 8, 8}; return x, x"

HIDDEN, CODE, BETA = 128, 8, 1.0


class Draw(nn.Module):
    def __init__(self):
        super().__init__()
        self.mean, self.log_variance = nn.Linear(HIDDEN, CODE), nn.Linear(HIDDEN, CODE)

    def forward(self, x):
        mean, log_variance = self.mean(x), self.log_variance(x)
        return mean + (0.5 * log_variance).exp() * torch.randn_like(mean), mean, log_variance


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(CODE, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 64))

    def forward(self, given):
        code, mean, log_variance = given
        return self.net(code), mean, log_variance


model = nn.Sequential(nn.Flatten(), nn.Linear(64, HIDDEN), nn.ReLU(), Draw(), Decoder())


def loss(given, target):
    output, mean, log_variance = given
    n = len(output)
    reconstruction = F.binary_cross_entropy_with_logits(output, target.flatten(1), reduction="sum") / n
    divergence = -0.5 * (1 + log_variance - mean**2 - log_variance.exp()).sum() / n
    return reconstruction + BETA * divergence


def optimizer(model):
    return torch.optim.Adam(model.parameters(), lr=2e-3)


def batch(i):
    x = torch.rand(32, 1, 8, 8)
    return x, x
