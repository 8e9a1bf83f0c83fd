-- Two networks ("towers"), one for queries and one for items. They learn vectors by which each query finds its item
-- among those of the batch (InfoNCE: van den Oord et al., 2018). Both pass through the stages together. The log shows
-- the two parts of the loss.
local strata = require "strata"
local nn, F = strata.nn, strata.F

-- Options, each of which is also a flag (--queries=...):
--   queries      numbers per query; a multiple of 8
--   items        numbers per item; a multiple of 8
--   dim          width of the hidden layers
--   embedding    length of the vectors that are compared
--   temperature  divides the scores: the smaller, the more the best matches count
local opt = strata.options { queries = 24, items = 40, dim = 64, embedding = 32, temperature = 0.1 }

-- A layer for both towers; each has its own weights.
local function both(name, make)
  return strata.layer {
    name = name,
    init = function(self, ...) self.query, self.item = make(opt.queries, ...), make(opt.items, ...) end,
    forward = function(self, q, d) return self.query(q), self.item(d) end,
  }
end

local In = both("In", function(from) return nn.Linear{from, opt.dim} end)
local Hidden = both("Hidden", function() return nn.Sequential{nn.ReLU{}, nn.Linear{opt.dim, opt.dim}} end)
local Out = both("Out", function() return nn.Sequential{nn.ReLU{}, nn.Linear{opt.dim, opt.embedding}} end)

local function loss(towers, target)
  local q, d = towers[1], towers[2]
  local scores = F.normalize(q, {dim=1}):matmul(F.normalize(d, {dim=1}):t()) / opt.temperature
  local there, back = F.cross_entropy(scores, target), F.cross_entropy(scores:t(), target)
  return (there + back) / 2, { query = there, item = back }
end

-- Made-up pairs: a query and its item are two noisy views of the same hidden vector.
local function pairs_of(i)
  local cause = F.randn{32, 8}
  local function view(size) return cause:tile{1, size / 8} + 0.1 * F.randn{32, size} end
  return { view(opt.queries), view(opt.items) }, F.arange(32)
end

return strata.job {
  name      = "two_tower",
  layers    = { In{}, Hidden{}, Hidden{}, Out{} },
  loss      = loss,
  batch     = { micro_batches = 2, micro_batch_size = 32 },
  optimizer = { "adamw", lr = 2e-3 },
  data      = pairs_of,
  steps     = 60,
}
