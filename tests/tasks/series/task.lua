-- Tells a series' next value from the 24 before it: windows that a function cuts out.
local strata = require "strata"
local nn = strata.nn
local series, length = strata.tensors.load "series.npy", 24

local Last = strata.layer {
  name = "Last",
  init = function(self) self.gru = nn.GRU{1, 32, batch_first = true} end,
  forward = function(self, x)
    local states = self.gru(x)
    return states:select(1, -1)
  end,
}

local windows = strata.dataset {
  length = series:size(0) - length,
  get = function(i) return series:narrow(0, i, length):unsqueeze(1), series:narrow(0, i + length, 1) end,
}
local train, test = windows:split{0.8, 0.2, seed = false}

return strata.job {
  layers    = { Last{}, nn.Linear{32, 1} },
  loss      = nn.MSELoss{},
  batch     = { micro_batches = 2, micro_batch_size = 16 },
  optimizer = { "adam", lr = 5e-3 },
  data      = { train = train, test = test },
  epochs    = 4,
}
