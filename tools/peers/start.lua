-- Measures the time of a start: each rank has a layer with almost no work.
--   tools/strata train tools/peers/start.lua --pipe=64
--   tools/strata train tools/peers/start.lua --pipe=8 --data=8 --layers=8
local strata = require "strata"
local nn = strata.nn
local opt = strata.options { layers = 64 }
local row = strata.F.ones{1, 8}

return strata.job {
  name      = "start",
  layers    = { strata.times(opt.layers, function() return nn.Linear{8, 8} end) },
  loss      = nn.MSELoss{},
  transport = "gloo",
  batch     = { micro_batches = 4, micro_batch_size = 1 },
  optimizer = { "sgd", lr = 0.001 },
  data      = { train = function() return row, row end },
  steps     = 2,
}
