-- Measures the cost of an action: two stages with almost no work, and 256 micro-batches of one row.
local strata = require "strata"
local nn = strata.nn
local row = strata.F.ones{1, 8}

return strata.job {
  name      = "empty",
  layers    = { nn.Linear{8, 8}, nn.Linear{8, 8} },
  loss      = nn.MSELoss{},
  partition = {0, 1, 2},
  parallel  = { pipe = 2 },
  batch     = { micro_batches = 256, micro_batch_size = 1 },
  optimizer = { "sgd", lr = 0.001 },
  data      = { train = function() return row, row end },
  steps     = 10,
}
