import pandas as pd
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

table = pd.read_csv("houses.csv").sample(frac=1)
prices = torch.tensor(table.pop("price").values, dtype=torch.float32).unsqueeze(1)
numbers = table.select_dtypes("number")
numbers = numbers.fillna(numbers.mean())
numbers = (numbers - numbers.mean()) / numbers.std()
words = pd.get_dummies(table.select_dtypes(exclude="number"))
inputs = torch.tensor(pd.concat([numbers, words], axis=1).values.astype("float32"))
cut = int(0.8 * len(inputs))
train = DataLoader(TensorDataset(inputs[:cut], prices[:cut]), 32, shuffle=True)
model = nn.Sequential(nn.Linear(inputs.shape[1], 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for epoch in range(20):
    for x, y in train:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        print(epoch, loss.item(), nn.functional.mse_loss(model(inputs[cut:]), prices[cut:]).item())
