-- MNIST's files to learn from, arrays of NumPy to be tested by.
local strata = require "strata"
local nn = strata.nn

return strata.job {
  layers = {
    nn.Conv2d{1, 8, kernel_size = 5, padding = 2}, nn.ReLU{}, nn.MaxPool2d{2},
    nn.Conv2d{8, 16, kernel_size = 5, padding = 2}, nn.ReLU{}, nn.MaxPool2d{2},
    nn.Flatten{}, nn.Linear{16 * 7 * 7, 64}, nn.ReLU{}, nn.Linear{64, 10},
  },
  loss      = nn.CrossEntropyLoss{},
  batch     = { micro_batches = 2, micro_batch_size = 16 },
  optimizer = { "adam", lr = 2e-3 },
  data      = { train = strata.data.idx{"train-images.idx.gz", "train-labels.idx.gz"},
                test = strata.data.npy{"test-images.npy", "test-labels.npy"} },
  eval      = { metric = "accuracy" },
  epochs    = 4,
}
