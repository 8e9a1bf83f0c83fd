local strata = require "strata"
local nn = strata.nn

return strata.job {
  layers    = { nn.Flatten{}, nn.Linear{64, 16}, nn.BatchNorm1d{16}, nn.ReLU{}, nn.Linear{16, 10} },
  loss      = nn.CrossEntropyLoss{},
  parallel  = { pipe = 2 },
  partition = { 0, 3, 5 },
  schedule  = "1f1b",
  batch     = { micro_batches = 2, micro_batch_size = 16 },
  optimizer = { "adamw", lr = 1e-2 },
  data      = { train = strata.data.digits{}, test = strata.data.digits{split="test"} },
  steps     = 4,
}
