"""models/lstm_tagger.lua in PyTorch."""
import torch
from torch import nn
from torch.nn import functional as F

CLIP = 1.0

VOCAB, SEQ, DIM, HIDDEN, LAYERS = 12, 16, 32, 48, 2


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(DIM, HIDDEN, LAYERS, batch_first=True, bidirectional=True)

    def forward(self, x):
        states, _ = self.lstm(x)
        return states


model = nn.Sequential(nn.Embedding(VOCAB, DIM), Tagger(), nn.Linear(2 * HIDDEN, 2))


def loss(output, target):
    return F.cross_entropy(output.flatten(0, 1), target.flatten())


def optimizer(model):
    return torch.optim.Adam(model.parameters(), lr=5e-3)


def batch(i):
    words = torch.randint(VOCAB, (16, SEQ))
    same = words.unsqueeze(2) == words.unsqueeze(1)
    return words, same.tril(-1).any(2).long()
