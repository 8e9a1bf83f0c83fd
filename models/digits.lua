-- A small convolutional network on two stages, which classifies handwritten digits (UCI, 8x8 pixels).
--   tools/strata train models/digits.lua
local strata = require "strata"
local nn = strata.nn

return strata.job {
  name = "digits",
  layers = {
    nn.Conv2d{1, 32, kernel_size=3, padding=1}, nn.ReLU{},
    nn.Conv2d{32, 64, kernel_size=3, padding=1}, nn.ReLU{}, nn.MaxPool2d{2},
    nn.Flatten{},
    nn.Dropout{0.3}, nn.Linear{1024, 64}, nn.ReLU{},
    nn.Linear{64, 10},
  },
  loss      = nn.CrossEntropyLoss{},
  parallel  = { pipe = 2 },
  batch     = { micro_batches = 4, micro_batch_size = 16 },
  optimizer = { "adam", lr = 1e-3 },
  data      = { train = strata.data.digits{}, test = strata.data.digits{split="test"} },
  epochs    = 12,
}
