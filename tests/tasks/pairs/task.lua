-- Two towers that put a query and its item at the same place.
local strata = require "strata"
local nn, F = strata.nn, strata.F
local queries, items = strata.tensors.load "queries.npy", strata.tensors.load "items.npy"

local Towers = strata.layer {
  name = "Towers",
  init = function(self)
    self.query = nn.Sequential{nn.Linear{24, 64}, nn.ReLU{}, nn.Linear{64, 16}}
    self.item = nn.Sequential{nn.Linear{40, 64}, nn.ReLU{}, nn.Linear{64, 16}}
  end,
  forward = function(self, query, item)
    return F.normalize(self.query(query), {dim = 1}), F.normalize(self.item(item), {dim = 1})
  end,
}

local function loss(towers, number)
  local scores = towers[1]:matmul(towers[2]:t()) / 0.1
  local own = F.arange(scores:size(0))
  local there, back = F.cross_entropy(scores, own), F.cross_entropy(scores:t(), own)
  return (there + back) / 2, { query = there, item = back }
end

return strata.job {
  layers    = { Towers{} },
  loss      = loss,
  batch     = { micro_batches = 2, micro_batch_size = 32 },
  optimizer = { "adamw", lr = 3e-3 },
  data      = strata.dataset { length = queries:size(0), batch = function(indices)
    return {queries[indices], items[indices]}, indices
  end },
  epochs    = 20,
}
