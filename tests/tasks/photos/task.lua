-- A folder of pictures, one sub-folder for each class.
local strata = require "strata"
local nn = strata.nn
local train, test = strata.data.image_folder{"photos", size = 36}:split{0.8, 0.2}
local mean, std = {0.48, 0.45, 0.40}, {0.23, 0.22, 0.22}

local function block(from, to)
  return { nn.Conv2d{from, to, kernel_size = 3, padding = 1}, nn.BatchNorm2d{to}, nn.ReLU{}, nn.MaxPool2d{2} }
end

return strata.job {
  layers    = { block(3, 16), block(16, 32), block(32, 64), nn.AdaptiveAvgPool2d{1}, nn.Flatten{}, nn.Linear{64, 3} },
  loss      = nn.CrossEntropyLoss{},
  batch     = { micro_batches = 2, micro_batch_size = 8 },
  optimizer = { "adamw", lr = 3e-3 },
  data      = { train = train:random_crop{32}:flip{}:jitter{brightness = 0.2}:normalise{mean, std},
                test = test:resize{32}:normalise{mean, std} },
  eval      = { every = 10, metric = "accuracy" },
  epochs    = 6,
}
