import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset

length = 24


class Windows(Dataset):
    def __init__(self, series):
        self.series = series

    def __len__(self):
        return len(self.series) - length

    def __getitem__(self, i):
        return self.series[i:i + length, None], self.series[i + length:i + length + 1]


windows = Windows(torch.from_numpy(np.load("series.npy")))
cut = int(0.8 * len(windows))
train = DataLoader(Subset(windows, range(cut)), 32, shuffle=True)
test = DataLoader(Subset(windows, range(cut, len(windows))), 64)


class Forecast(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru, self.head = nn.GRU(1, 32, batch_first=True), nn.Linear(32, 1)

    def forward(self, x):
        return self.head(self.gru(x)[0][:, -1])


model = Forecast()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
for epoch in range(4):
    for x, y in train:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
    with torch.no_grad():
        print(epoch, torch.stack([nn.functional.mse_loss(model(x), y) for x, y in test]).mean().item())
