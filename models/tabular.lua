-- A residual network that predicts a number from a row of a table. The row's numbers pass through a Linear layer, each
-- of its categories through an embedding. The rows are made up; models/new/tabular.lua reads a CSV file.
local strata = require "strata"
local nn, F = strata.nn, strata.F

-- Options, each of which is also a flag (--numbers=...):
--   numbers     columns with numbers
--   categories  columns with categories: the number of categories in each
--   dim         width: numbers per row between the layers
--   depth       residual blocks
local opt = strata.options { numbers = 6, categories = {8, 5}, dim = 64, depth = 3 }

local Row = strata.layer {
  name = "Row",
  init = function(self)
    self.numbers = nn.Linear{opt.numbers, opt.dim}
    self.categories = {}
    for i, size in ipairs(opt.categories) do self.categories[i] = nn.Embedding{size, opt.dim} end
  end,
  forward = function(self, numbers, categories)
    local x = self.numbers(numbers)
    for i, embedding in ipairs(self.categories) do x = x + embedding(categories:select(1, i - 1)) end
    return x
  end,
}

local function rows(i)
  local numbers = F.randn{32, opt.numbers}
  local drawn = {}
  for c, size in ipairs(opt.categories) do drawn[c] = F.randint(size, {32}) end
  local categories = F.stack(drawn, 1)
  local y = numbers:select(1, 0):sin() + numbers:select(1, 1) * categories:select(1, 0):remainder(3) / 2
  return { numbers, categories }, y:unsqueeze(1)
end

return strata.job {
  name   = "tabular",
  layers = {
    Row{},
    strata.times(opt.depth, function()
      local d = opt.dim
      return nn.Residual{nn.LayerNorm{d}, nn.Linear{d, 2 * d}, nn.SiLU{}, nn.Linear{2 * d, d}}
    end),
    nn.LayerNorm{opt.dim}, nn.Linear{opt.dim, 1},
  },
  loss      = nn.HuberLoss{},
  batch     = { micro_batches = 2, micro_batch_size = 32 },
  optimizer = { "adamw", lr = 3e-3 },
  data      = rows,
  steps     = 100,
}
