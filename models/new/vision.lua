-- A small convolutional network that classifies images. It is cut into stages that run as a pipeline.
--   strata train train.lua
local strata = require "strata"
local nn = strata.nn

-- Each option is also a flag: strata train train.lua --width=64 --folder=photos
local opt = strata.options {
  folder  = "",    -- a folder with a sub-folder of images for each class; "" = the digits that come with Strata
  pixels  = 32,    -- images of the folder are resized to pixels x pixels
  classes = 10,    -- number of classes, which is the number of sub-folders
  width   = 32,    -- channels of the first convolution
  dropout = 0.3,   -- share of values that a training step sets to 0, against overfitting
}

local channels, side, train, test = 1, 8, strata.data.digits{}, strata.data.digits{split="test"}
if opt.folder ~= "" then
  channels, side = 3, opt.pixels
  train, test = strata.data.image_folder{opt.folder, size=side}:split{0.9, 0.1, seed=1}
  train = train:flip{}                 -- mirrors a random half of the training images
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
  parallel  = { pipe = 2 },            -- number of stages; `strata plan` shows where the list of layers is cut
  schedule  = "1f1b",                  -- order of the work; `strata help schedule` lists all schedules
  batch     = { micro_batches = 4, micro_batch_size = 16 },  -- 64 samples per step
  optimizer = { "adamw", lr = 1e-3 },  -- `strata help optimizer` lists all optimizers
  data      = { train = train, test = test },
  epochs    = 4,
}
