"""models/resnet.lua in PyTorch, with one block a group."""
import torch
from torch import nn

OPTIONS = {"depth": 10, "stem": 8, "width": 8, "pixels": 64, "classes": 10, "batch.micro_batch_size": 8,
           "optimizer.lr": 0.0002}
DATA = "return F.rand{8, 3, 64, 64}, F.randint(10, {8})"

WIDTH, CLASSES = 8, 10


class Block(nn.Module):
    def __init__(self, width, out, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(width, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out)
        self.conv2, self.bn2 = nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out)
        self.downsample = nn.Identity()
        if stride != 1:
            self.downsample = nn.Sequential(nn.Conv2d(width, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x):
        y = self.bn2(self.conv2(self.bn1(self.conv1(x)).relu()))
        return (y + self.downsample(x)).relu()


class ResNet(nn.Sequential):
    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, WIDTH, 7, 2, 3, bias=False), nn.BatchNorm2d(WIDTH)
        self.relu, self.maxpool = nn.ReLU(), nn.MaxPool2d(3, 2, 1)
        for g in range(4):
            width = WIDTH << max(g - 1, 0)
            setattr(self, "layer%d" % (g + 1), nn.Sequential(Block(width, WIDTH << g, 2 if g else 1)))
        self.avgpool, self.flatten, self.fc = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8 * WIDTH, CLASSES)


model = ResNet()


def loss(output, target):
    return nn.functional.cross_entropy(output, target)


def optimizer(model):
    return torch.optim.SGD(model.parameters(), lr=0.0002, momentum=0.9, weight_decay=1e-4)


def batch(i):
    return torch.rand(8, 3, 64, 64), torch.randint(10, (8,))
