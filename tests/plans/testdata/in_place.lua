-- Functions that work in place wherever they can: on data, on what layers keep for their backward,
-- on whole numbers, on a value that was also skipped, in the loss, in a buffer of the script's own.
local strata = require "strata"
local nn, F = strata.nn, strata.F
local images, labels = F.zeros{4, 3, 16, 16}, F.zeros({4}, {dtype = "int64"})

return strata.job {
  layers = {
    function(x) return x:sub_(0.5):div_(0.25) end,
    nn.Conv2d{3, 16, kernel_size = 3}, nn.ReLU{inplace = true}, nn.Flatten{2},
    nn.ReLU{inplace = true}, function(x) return x:transpose(1, 2) end,
    nn.Linear{16, 24}, nn.Tanh{}, function(x) return x:mul_(1.5) end,
    function(x) return x, x:gt(0):to("int64") end,
    function(x, m) return x:add_(m:add_(2)) end,
    strata.skip{"here"}, function(x) return x:tanh_() end, nn.Linear{24, 24}, strata.join{"here"},
    nn.Dropout{0.1}, function(x) return x end, function(x) return x:relu_() end,
    function(x) return x:sum(1) end, nn.Linear{24, 10},
  },
  loss = function(output, target) return F.cross_entropy(output:div_(2), target:add_(1):remainder_(10)) end,
  optimizer = {"sgd", lr = 0.01}, steps = 2, threads = 1,
  batch = { micro_batches = 4, micro_batch_size = 4 },
  data = function(i) return images:normal_(), labels:random_(0, 10) end,
}
