-- Rows of a CSV file: a residual network that predicts a number, here a price.
--   strata train train.lua
local strata = require "strata"
local nn = strata.nn

-- Each is a flag, too: strata train train.lua --file=mine.csv --target=sales
local opt = strata.options {
  file   = "houses.csv",  -- its first line has the names of the columns; what comes along is made up
  target = "price",       -- the column to predict; words become classes, and the loss is another one then
  dim    = 64,            -- numbers per row between the layers
  depth  = 2,             -- residual blocks
}

-- Columns of words become a 0 or 1 for each word, numbers get mean 0 and variance 1.
local rows = strata.data.csv{opt.file, target=opt.target, normalise=true}
local train, test = rows:split{0.8, 0.2, seed=1}
local columns = train[0][1].shape[1]

return strata.job {
  layers = {
    nn.Linear{columns, opt.dim},
    strata.times(opt.depth, function()
      return nn.Residual{nn.LayerNorm{opt.dim}, nn.Linear{opt.dim, 2 * opt.dim}, nn.SiLU{},
                         nn.Linear{2 * opt.dim, opt.dim}}
    end),
    nn.LayerNorm{opt.dim}, nn.Linear{opt.dim, 1},
  },
  loss      = nn.HuberLoss{},
  parallel  = { pipe = 2 },            -- stages; strata plan shows where the list is cut
  batch     = { micro_batches = 2, micro_batch_size = 16 },
  optimizer = { "adamw", lr = 3e-3 },  -- strata help optimizer
  data      = { train = train, test = test },
  eval      = { metrics = {"r2", "mae"} },
  epochs    = 20,
}
