import numpy as np
import torch
from collections import OrderedDict
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

arrays = np.load("flowers.npz")
train, test = random_split(TensorDataset(torch.from_numpy(arrays["images"]), torch.from_numpy(arrays["labels"])),
                           [0.8, 0.2])
model = nn.Sequential(OrderedDict(
    conv1=nn.Conv2d(3, 16, 3, padding=1), relu1=nn.ReLU(), pool1=nn.MaxPool2d(2),
    conv2=nn.Conv2d(16, 32, 3, padding=1), relu2=nn.ReLU(), pool2=nn.AdaptiveAvgPool2d(2), flatten=nn.Flatten(),
    head=nn.Linear(128, 3)))
state = {name: tensor for name, tensor in torch.load("pretrained.pth").items() if not name.startswith("head")}
model.load_state_dict(state, strict=False)
model.conv1.requires_grad_(False)
optimizer = torch.optim.Adam([{"params": model.conv2.parameters(), "lr": 1e-3}, {"params": model.head.parameters()}],
                             lr=1e-2)
for epoch in range(10):
    model.train()
    for x, y in DataLoader(train, 32, shuffle=True):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        print(epoch, sum((model(x).argmax(1) == y).sum().item() for x, y in DataLoader(test, 64)) / len(test))
