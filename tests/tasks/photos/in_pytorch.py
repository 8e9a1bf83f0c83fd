import torch
from torch import nn
from torch.utils.data import DataLoader, Subset
from torchvision import datasets, transforms

normalise = transforms.Normalize((0.48, 0.45, 0.40), (0.23, 0.22, 0.22))
sized = [transforms.Resize(36), transforms.CenterCrop(36)]
varied = transforms.Compose([*sized, transforms.RandomCrop(32), transforms.RandomHorizontalFlip(),
                             transforms.ColorJitter(brightness=0.2), transforms.ToTensor(), normalise])
plain = transforms.Compose([*sized, transforms.Resize(32), transforms.ToTensor(), normalise])
order = torch.randperm(len(datasets.ImageFolder("photos"))).tolist()
cut = int(0.8 * len(order))
train = DataLoader(Subset(datasets.ImageFolder("photos", varied), order[:cut]), 16, shuffle=True, num_workers=1)
test = DataLoader(Subset(datasets.ImageFolder("photos", plain), order[cut:]), 16)


def block(inside, out):
    return nn.Sequential(nn.Conv2d(inside, out, 3, padding=1), nn.BatchNorm2d(out), nn.ReLU(), nn.MaxPool2d(2))


model = nn.Sequential(block(3, 16), block(16, 32), block(32, 64), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                      nn.Linear(64, 3))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for epoch in range(6):
    model.train()
    for x, y in train:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        correct = sum((model(x).argmax(1) == y).sum().item() for x, y in test)
    print(epoch, loss.item(), correct / len(test.dataset))
