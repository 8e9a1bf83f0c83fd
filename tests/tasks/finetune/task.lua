-- A new head on a network that others trained; what it knows stays, the rest learns slowly.
local strata = require "strata"
local nn = strata.nn
local train, test = strata.data.npz{"flowers.npz", "images", "labels"}:split{0.8, 0.2}

return strata.job {
  layers = {
    nn.Conv2d{3, 16, kernel_size = 3, padding = 1, name = "conv1"}, nn.ReLU{}, nn.MaxPool2d{2},
    nn.Conv2d{16, 32, kernel_size = 3, padding = 1, name = "conv2"}, nn.ReLU{}, nn.AdaptiveAvgPool2d{2}, nn.Flatten{},
    nn.Linear{128, 3, name = "head"},
  },
  loss      = nn.CrossEntropyLoss{},
  weights   = { "pretrained.pth", except = "head" },
  freeze    = { "conv1" },
  batch     = { micro_batches = 2, micro_batch_size = 16 },
  optimizer = { "adam", lr = 1e-2, groups = {{layers = {"conv2"}, lr = 1e-3}} },
  data      = { train = train, test = test },
  eval      = { metric = "accuracy" },
  epochs    = 10,
}
