-- A multilayer perceptron that classifies the handwritten digits that come with Strata.
--   tools/strata train models/mlp.lua --width=256 --depth=3
local strata = require "strata"
local nn = strata.nn

-- Options, each of which is also a flag (--width=...):
--   width    width of the hidden layers
--   depth    hidden layers after the first one
--   dropout  share of values that a training step sets to 0
local opt = strata.options { width = 128, depth = 2, dropout = 0.2 }

return strata.job {
  name   = "mlp",
  layers = {
    nn.Flatten{}, nn.Linear{64, opt.width}, nn.ReLU{},
    strata.times(opt.depth, function()
      return { nn.Linear{opt.width, opt.width}, nn.BatchNorm1d{opt.width}, nn.ReLU{}, nn.Dropout{opt.dropout} }
    end),
    nn.Linear{opt.width, 10},
  },
  loss      = nn.CrossEntropyLoss{},
  batch     = { micro_batches = 4, micro_batch_size = 16 },
  optimizer = { "adam", lr = 1e-3 },
  data      = { train = strata.data.digits{}, test = strata.data.digits{split="test"} },
  epochs    = 12,
}
