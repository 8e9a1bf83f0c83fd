"""models/bert.lua in PyTorch."""
import torch
from torch import nn

OPTIONS = {"vocab": 64, "seq": 16, "dim": 32, "heads": 4, "depth": 2, "hidden": 64, "dropout": 0, "rows": 4,
           "optimizer.lr": 1e-3}
NAMES = {r"^0\.": "embeddings.", r"^1\.": "embeddings.LayerNorm.", r"^3\.": "layer.0.", r"^4\.": "layer.1.",
         r"^6\.": "pooler.", r"^9\.": "classifier."}

VOCAB, SEQ, DIM, HEADS, DEPTH, HIDDEN, CLASSES, DROPOUT, ROWS = 64, 16, 32, 4, 2, 64, 2, 0, 4


class Embeddings(nn.Module):
    def __init__(self):
        super().__init__()
        self.word = nn.Parameter(torch.empty(VOCAB, DIM))
        self.position = nn.Parameter(torch.empty(SEQ, DIM))
        self.segment = nn.Parameter(torch.empty(2, DIM))
        for table in self.parameters():
            nn.init.normal_(table, 0, 0.02)

    def forward(self, x):
        return nn.functional.embedding(x, self.word) + self.position[:x.shape[1]] + self.segment[0]


class First(nn.Module):
    def forward(self, x):
        return x[:, 0]


model = nn.Sequential(
    Embeddings(),
    nn.LayerNorm(DIM, eps=1e-12),
    nn.Dropout(DROPOUT),
    *(nn.TransformerEncoderLayer(DIM, HEADS, HIDDEN, DROPOUT, "gelu", layer_norm_eps=1e-12, batch_first=True)
      for _ in range(DEPTH)),
    First(),
    nn.Linear(DIM, DIM),
    nn.Tanh(),
    nn.Dropout(DROPOUT),
    nn.Linear(DIM, CLASSES),
)
loss = nn.CrossEntropyLoss()


def optimizer(model):
    return torch.optim.AdamW(model.parameters(), lr=1e-3)


def batch(i):
    return torch.randint(VOCAB, (ROWS, SEQ)), torch.randint(CLASSES, (ROWS,))
