import math
import numpy as np
import torch
from torch import nn

dim, length, vocab = 64, 32, 64
files = {split: np.memmap(split + ".bin", dtype=np.uint16, mode="r") for split in ("train", "val")}


def batch(split, size=32):
    starts = torch.randint(len(files[split]) - length, (size,))
    x = torch.stack([torch.from_numpy(files[split][i:i + length].astype(np.int64)) for i in starts])
    y = torch.stack([torch.from_numpy(files[split][i + 1:i + 1 + length].astype(np.int64)) for i in starts])
    return x, y


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, dim), nn.Embedding(length, dim)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(dim, 4, 4 * dim, 0.1, "gelu", batch_first=True, norm_first=True) for _ in range(4))
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, vocab, bias=False)

    def forward(self, x):
        mask = nn.Transformer.generate_square_subsequent_mask(x.size(1))
        x = self.wte(x) + self.wpe(torch.arange(x.size(1)))
        for layer in self.layers:
            x = layer(x, src_mask=mask, is_causal=True)
        return self.head(self.norm(x))


model = GPT()
optimizer = torch.optim.AdamW([
    {"params": [p for p in model.parameters() if p.dim() >= 2]},
    {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0}], lr=2e-3, betas=(0.9, 0.95))
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: (
    (step + 1) / 10 if step < 10 else 0.5 * (1 + math.cos(math.pi * (step - 10) / 70))))
for step in range(80):
    x, y = batch("train")
    loss = nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    schedule.step()
    print(step, loss.item())
model.eval()
with torch.no_grad():
    x, y = batch("val", 256)
    print(nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten()).item())
