import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

train, test = random_split(TensorDataset(torch.from_numpy(np.load("images.npy")),
                                         torch.from_numpy(np.load("masks.npy"))), [0.85, 0.15])
train, test = DataLoader(train, 16, shuffle=True), DataLoader(test, 16)


def double(inside, out):
    return nn.Sequential(*(part for a in (inside, out) for part in (
        nn.Conv2d(a, out, 3, padding=1), nn.BatchNorm2d(out), nn.ReLU())))


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.inside, self.last = double(1, 8), double(8, 16), double(16, 8)
        self.down, self.up, self.out = nn.MaxPool2d(2), nn.ConvTranspose2d(16, 8, 2, stride=2), nn.Conv2d(8, 1, 1)

    def forward(self, x):
        fine = self.first(x)
        return self.out(self.last(torch.cat([self.up(self.inside(self.down(fine))), fine], 1)))


def parts(output, mask):
    p = output.sigmoid()
    dice = 1 - (2 * (p * mask).sum() + 1) / (p.sum() + mask.sum() + 1)
    return dice, nn.functional.binary_cross_entropy_with_logits(output, mask)


model = UNet()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
for epoch in range(6):
    model.train()
    for x, y in train:
        dice, bce = parts(model(x), y)
        optimizer.zero_grad()
        (dice + bce).backward()
        optimizer.step()
        print(epoch, (dice + bce).item(), dice.item(), bce.item())
    model.eval()
    with torch.no_grad():
        print(torch.tensor([parts(model(x), y) for x, y in test]).mean(0))
