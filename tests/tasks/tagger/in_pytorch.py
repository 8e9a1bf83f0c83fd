import json
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, random_split

with open("sentences.json") as file:
    sentences = [(torch.tensor(s["words"]), torch.tensor(s["tags"])) for s in json.load(file)]


def collate(samples):
    words, tags = zip(*samples)
    mask = pad_sequence([torch.ones(len(w)) for w in words], True)
    return pad_sequence(words, True), mask, pad_sequence(tags, True, -100)


train, test = random_split(sentences, [0.9, 0.1])
train = DataLoader(train, 32, shuffle=True, collate_fn=collate)
test = DataLoader(test, 32, collate_fn=collate)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(12, 32)
        self.lstm = nn.LSTM(32, 32, batch_first=True, bidirectional=True)
        self.head = nn.Linear(64, 2)

    def forward(self, words, mask):
        states, _ = self.lstm(self.embedding(words) * mask.unsqueeze(2))
        return self.head(states.relu())


model = Tagger()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for epoch in range(6):
    model.train()
    for words, mask, tags in train:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(words, mask).flatten(0, 1), tags.flatten())
        loss.backward()
        optimizer.step()
    model.eval()
    correct = counted = 0
    with torch.no_grad():
        for words, mask, tags in test:
            correct += (model(words, mask).argmax(2) == tags)[tags >= 0].sum().item()
            counted += (tags >= 0).sum().item()
    print(epoch, correct / counted)
