import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, random_split

train, test = random_split(torch.from_numpy(np.load("images.npy")), [0.9, 0.1])


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Flatten(), nn.Linear(256, 64), nn.ReLU())
        self.mean, self.log_var = nn.Linear(64, 4), nn.Linear(64, 4)
        self.decoder = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 256), nn.Sigmoid())

    def forward(self, x):
        x = self.encoder(x)
        mean, log_var = self.mean(x), self.log_var(x)
        z = mean + (log_var / 2).exp() * torch.randn_like(mean) if self.training else mean
        return self.decoder(z), mean, log_var


def parts(output, x):
    image, mean, log_var = output
    bce = nn.functional.binary_cross_entropy(image, x.flatten(1), reduction="sum") / len(x)
    return bce, -0.5 * (1 + log_var - mean ** 2 - log_var.exp()).sum() / len(x)


model = VAE()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for epoch in range(10):
    model.train()
    for x in DataLoader(train, 32, shuffle=True):
        bce, kl = parts(model(x), x)
        optimizer.zero_grad()
        (bce + kl).backward()
        optimizer.step()
    print(epoch, (bce + kl).item(), bce.item(), kl.item())
    model.eval()
    with torch.no_grad():
        print(torch.tensor([parts(model(x), x) for x in DataLoader(test, 64)]).mean(0))
