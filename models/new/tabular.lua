-- A residual network that predicts a number, here a price, from a row of a CSV file.
--   strata train train.lua
local strata = require "strata"
local nn = strata.nn

-- Each option is also a flag: strata train train.lua --file=mine.csv --target=sales
local opt = strata.options {
  file   = "houses.csv",  -- a CSV file whose first line names the columns; houses.csv is made up
  target = "price",       -- the column to predict; for words, use nn.CrossEntropyLoss{} and an output for each word
  dim    = 64,            -- width: numbers per row between the layers
  depth  = 2,             -- residual blocks
}

-- A column of words becomes a column of 0 or 1 for each word; columns of numbers are scaled to mean 0 and variance 1.
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
  parallel  = { pipe = 2 },            -- number of stages; `strata plan` shows where the list of layers is cut
  batch     = { micro_batches = 2, micro_batch_size = 16 },
  optimizer = { "adamw", lr = 3e-3 },  -- `strata help optimizer` lists all optimizers
  data      = { train = train, test = test },
  eval      = { metrics = {"r2", "mae"} },
  epochs    = 20,
}
