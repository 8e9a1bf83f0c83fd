"""models/sentences.lua in PyTorch."""
import torch
from torch import nn

VOCAB, SEQ, DIM, DEPTH, HEADS, CLASSES = 32, 24, 64, 3, 4, 4


class Embeddings(nn.Module):
    def __init__(self):
        super().__init__()
        self.word_embeddings = nn.Embedding(VOCAB, DIM, padding_idx=0)
        self.position_embeddings = nn.Embedding(SEQ, DIM)
        self.LayerNorm = nn.LayerNorm(DIM, eps=1e-12)

    def forward(self, tokens):
        x = self.word_embeddings(tokens) + self.position_embeddings(torch.arange(tokens.shape[1]))
        return self.LayerNorm(x), tokens == 0


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(DIM, HEADS, 4 * DIM, 0, "gelu", batch_first=True)

    def forward(self, given):
        x, padding = given
        return self.layer(x, src_key_padding_mask=padding), padding


class Pooler(nn.Module):
    def __init__(self):
        super().__init__()
        self.dense = nn.Linear(DIM, DIM)

    def forward(self, given):
        return self.dense(given[0][:, 0]).tanh()


model = nn.Sequential(
    Embeddings(),
    *(Block() for _ in range(DEPTH)),
    Pooler(),
    nn.Linear(DIM, CLASSES),
)
loss = nn.CrossEntropyLoss()


def optimizer(model):
    return torch.optim.AdamW(model.parameters(), lr=5e-4)


def batch(i):
    label = torch.randint(CLASSES, (16,))
    words = torch.randint(1, VOCAB, (16, SEQ))
    words = torch.where(torch.rand(16, SEQ) < 0.5, label.unsqueeze(1) + 1, words)
    length = torch.randint(SEQ // 2, SEQ + 1, (16, 1))
    return words * (torch.arange(SEQ) < length), label
