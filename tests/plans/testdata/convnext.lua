-- A ConvNeXt, small: its blocks are permuted there and back, its head gets a sum's gradient.
local strata = require "strata"
local nn, F = strata.nn, strata.F

-- A function each time: layers that are one function would have one name.
local function to_last() return function(x) return x:permute(0, 2, 3, 1) end end
local function to_first() return function(x) return x:permute(0, 3, 1, 2) end end

local function block(i)
  local name = "block" .. i
  return {
    strata.skip{name},
    nn.Conv2d{16, 16, kernel_size = 7, padding = 3, groups = 16}, to_last(), nn.LayerNorm{16},
    nn.Linear{16, 64}, nn.GELU{}, nn.Linear{64, 16},
    function(x) return x:mul_(0.5) end, to_first(), strata.join{name},
  }
end

return strata.job {
  layers = {
    nn.Conv2d{3, 16, kernel_size = 4, stride = 4}, to_last(), nn.LayerNorm{16}, to_first(),
    strata.times(2, block),
    to_last(), nn.LayerNorm{16}, to_first(), nn.Conv2d{16, 24, kernel_size = 2, stride = 2},
    function(x) return x:sum{2, 3} end, nn.LayerNorm{24}, nn.Linear{24, 10},
  },
  loss = nn.CrossEntropyLoss{}, optimizer = {"adamw", lr = 0.001}, steps = 2, threads = 1,
  batch = { micro_batches = 4, micro_batch_size = 2 },
  data = function(i) return F.randn{2, 3, 32, 32}, F.randint(10, {2}) end,
}
