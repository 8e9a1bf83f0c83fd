"""models/resnet.lua in PyTorch, run with one block a group."""
import torch
from torch import nn

OPTIONS = {"depth": 10, "width": 8, "pixels": 64, "classes": 10, "batch.micro_batch_size": 8, "optimizer.lr": 0.0002}
DATA = "return F.rand{8, 3, 64, 64}, F.randint(10, {8})"

DEPTH, WIDTH, CLASSES, STEM = 10, 8, 10, "imagenet"
BLOCKS = {10: (1, 1, 1, 1), 18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3)}
WIDER = 4 if DEPTH == 50 else 1


def conv(width, out, size, stride=1):
    return nn.Conv2d(width, out, size, stride, size // 2, bias=False)


class Block(nn.Module):
    def __init__(self, width, inside, stride):
        super().__init__()
        out = WIDER * inside
        self.relu = nn.ReLU()
        if WIDER == 1:
            self.conv1, self.bn1 = conv(width, inside, 3, stride), nn.BatchNorm2d(inside)
            self.conv2, self.bn2 = conv(inside, inside, 3), nn.BatchNorm2d(inside)
        else:
            self.conv1, self.bn1 = conv(width, inside, 1), nn.BatchNorm2d(inside)
            self.conv2, self.bn2 = conv(inside, inside, 3, stride), nn.BatchNorm2d(inside)
            self.conv3, self.bn3 = conv(inside, out, 1), nn.BatchNorm2d(out)
        self.downsample = nn.Identity()
        if stride != 1 or width != out:
            self.downsample = nn.Sequential(conv(width, out, 1, stride), nn.BatchNorm2d(out))

    def forward(self, x):
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        if WIDER > 1:
            y = self.bn3(self.conv3(self.relu(y)))
        return self.relu(y + self.downsample(x))


class ResNet(nn.Sequential):
    def __init__(self):
        super().__init__()
        self.conv1 = conv(3, WIDTH, 3) if STEM == "cifar" else conv(3, WIDTH, 7, 2)
        self.bn1, self.relu = nn.BatchNorm2d(WIDTH), nn.ReLU()
        self.maxpool = nn.Identity() if STEM == "cifar" else nn.MaxPool2d(3, 2, 1)
        width = WIDTH
        for g, count in enumerate(BLOCKS[DEPTH]):
            group = nn.Sequential()
            for i in range(count):
                group.append(Block(width, WIDTH << g, 2 if g > 0 and i == 0 else 1))
                width = WIDER * (WIDTH << g)
            setattr(self, "layer%d" % (g + 1), group)
        self.avgpool, self.flatten, self.fc = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, CLASSES)


model = ResNet()
loss = nn.CrossEntropyLoss()


def optimizer(model):
    return torch.optim.SGD(model.parameters(), lr=0.0002, momentum=0.9, weight_decay=1e-4)


def batch(i):
    return torch.rand(8, 3, 64, 64), torch.randint(10, (8,))
