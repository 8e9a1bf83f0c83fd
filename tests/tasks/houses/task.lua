-- A table in a CSV file, numbers and words (a column for each of them), whose last column is told from the others.
local strata = require "strata"
local nn = strata.nn
local train, test = strata.data.csv{"houses.csv", target = "price", normalise = true, missing = "mean"}:split{0.8, 0.2}

return strata.job {
  layers    = { nn.Linear{5, 64}, nn.ReLU{}, nn.Linear{64, 64}, nn.ReLU{}, nn.Linear{64, 1} },
  loss      = nn.MSELoss{},
  batch     = { micro_batches = 2, micro_batch_size = 16 },
  optimizer = { "adamw", lr = 3e-3 },
  data      = { train = train, test = test },
  eval      = { every = 10 },
  epochs    = 20,
}
