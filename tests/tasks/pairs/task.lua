-- Two towers that put a query and its item at the same place.
local strata = require "strata"
local nn, F = strata.nn, strata.F
local queries, items = strata.tensors.load "queries.npy", strata.tensors.load "items.npy"

local train, test = strata.dataset {
  length = queries:size(0),
  batch = function(indices) return {queries[indices], items[indices]}, indices end,
}:split{0.9, 0.1}

local function both(name, make)
  return strata.layer {
    name = name,
    init = function(self) self.query, self.item = make(24), make(40) end,
    forward = function(self, query, item) return self.query(query), self.item(item) end,
  }
end
local Hidden = both("Hidden", function(from) return nn.Sequential{nn.Linear{from, 64}, nn.ReLU{}} end)
local Place = both("Place", function() return nn.Linear{64, 16} end)

local function loss(towers, number)
  local scores = F.normalize(towers[1], {dim = 1}):matmul(F.normalize(towers[2], {dim = 1}):t()) / 0.1
  local own = F.arange(scores:size(0))
  local there, back = F.cross_entropy(scores, own), F.cross_entropy(scores:t(), own)
  return (there + back) / 2, { query = there, item = back }
end

return strata.job {
  layers    = { Hidden{}, Place{} },
  loss      = loss,
  batch     = { micro_batches = 2, micro_batch_size = 32 },
  optimizer = { "adamw", lr = 3e-3 },
  data      = { train = train, test = test },
  epochs    = 20,
}
