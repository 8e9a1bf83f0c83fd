-- A small network on synthetic images, for the launcher's tests.
local strata = require "strata"
local nn = strata.nn
local opt = strata.options{ width = 16, fail_at = -1 }

return strata.job {
  name = "tiny",
  layers = {
    nn.Flatten{}, nn.Linear{64, opt.width}, nn.ReLU{},
    nn.Linear{opt.width, opt.width}, nn.ReLU{}, nn.Linear{opt.width, 4},
  },
  loss = nn.CrossEntropyLoss{},
  partition = "parameters",
  parallel = { pipe = 2 },
  schedule = "1f1b",
  batch = { micro_batches = 4, micro_batch_size = 8 },
  optimizer = { "sgd", lr = 0.1 },
  data = {
    train = strata.data.images{ shape = {1, 8, 8}, classes = 4, samples = 256 },
    test = strata.data.images{ shape = {1, 8, 8}, classes = 4, samples = 64, split = "test" },
  },
  device = "cpu",
  steps = 5,
}
