import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

data = TensorDataset(torch.from_numpy(np.load("queries.npy")), torch.from_numpy(np.load("items.npy")))
train, test = random_split(data, [0.9, 0.1])


class Towers(nn.Module):
    def __init__(self):
        super().__init__()
        self.query = nn.Sequential(nn.Linear(24, 64), nn.ReLU(), nn.Linear(64, 16))
        self.item = nn.Sequential(nn.Linear(40, 64), nn.ReLU(), nn.Linear(64, 16))

    def forward(self, query, item):
        return nn.functional.normalize(self.query(query), dim=1), nn.functional.normalize(self.item(item), dim=1)


def parts(query, item):
    scores = query @ item.t() / 0.1
    own = torch.arange(len(scores))
    return nn.functional.cross_entropy(scores, own), nn.functional.cross_entropy(scores.t(), own)


model = Towers()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for epoch in range(20):
    model.train()
    for query, item in DataLoader(train, 32, shuffle=True):
        there, back = parts(*model(query, item))
        loss = (there + back) / 2
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item(), there.item(), back.item())
    model.eval()
    with torch.no_grad():
        print(torch.tensor([parts(*model(query, item)) for query, item in DataLoader(test, 32)]).mean(0))
