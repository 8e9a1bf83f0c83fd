-- Images into classes: a small convolutional network, cut into stages that run as a pipeline.
--   strata train train.lua
local strata = require "strata"
local nn = strata.nn

-- Each is a flag, too: strata train train.lua --width=64 --folder=photos
local opt = strata.options {
  folder  = "",    -- a folder with a sub-folder of images per class; "" = handwritten digits that come along
  pixels  = 32,    -- images of the folder become pixels x pixels
  classes = 10,    -- sub-folders there are
  width   = 32,    -- channels of the first convolution
  dropout = 0.3,   -- share of values that a training step leaves out, against learning by heart
}

local channels, side, train, test = 1, 8, strata.data.digits{}, strata.data.digits{split="test"}
if opt.folder ~= "" then
  channels, side = 3, opt.pixels
  train, test = strata.data.image_folder{opt.folder, size=side}:split{0.9, 0.1, seed=1}
  train = train:flip{}                 -- every other image as in a mirror
end

return strata.job {
  layers = {
    nn.Conv2d{channels, opt.width, kernel_size=3, padding=1}, nn.ReLU{},
    nn.Conv2d{opt.width, 2 * opt.width, kernel_size=3, padding=1}, nn.ReLU{}, nn.MaxPool2d{2},
    nn.Flatten{}, nn.Dropout{opt.dropout},
    nn.Linear{2 * opt.width * (side / 2) ^ 2, 64}, nn.ReLU{},
    nn.Linear{64, opt.classes},
  },
  loss      = nn.CrossEntropyLoss{},
  parallel  = { pipe = 2 },            -- stages; strata plan shows where the list is cut
  schedule  = "1f1b",                  -- strata help schedule lists them
  batch     = { micro_batches = 4, micro_batch_size = 16 },  -- 64 samples a step
  optimizer = { "adamw", lr = 1e-3 },  -- strata help optimizer
  data      = { train = train, test = test },
  epochs    = 4,
}
