-- AlexNet with the 22 layers of DeepSpeed's pipeline example. It classifies images of 224x224 pixels into ten classes.
--   tools/strata plan  models/alexnet.lua --pipe=2 --partition=parameters     (cuts 0,19,22, as in that example)
--   tools/strata train models/alexnet.lua --pipe=2 --steps=5
-- It trains on synthetic images unless --cifar names a folder with CIFAR-10.
local strata = require "strata"
local nn = strata.nn

-- Options, each of which is also a flag (--cifar=...):
--   cifar    a folder with CIFAR-10 (binary version), whose images are resized; "" = synthetic images
--   classes  number of classes
local opt = strata.options { cifar = "", classes = 10 }

return strata.job {
  name   = "alexnet",
  input  = { shape = {3, 224, 224}, dtype = "float32" },
  layers = {
    nn.Conv2d{3, 64, kernel_size=11, stride=4, padding=2}, nn.ReLU{inplace=true},
    nn.MaxPool2d{3, stride=2},
    nn.Conv2d{64, 192, kernel_size=5, padding=2}, nn.ReLU{inplace=true},
    nn.MaxPool2d{3, stride=2},
    nn.Conv2d{192, 384, kernel_size=3, padding=1}, nn.ReLU{inplace=true},
    nn.Conv2d{384, 256, kernel_size=3, padding=1}, nn.ReLU{inplace=true},
    nn.Conv2d{256, 256, kernel_size=3, padding=1}, nn.ReLU{inplace=true},
    nn.MaxPool2d{3, stride=2},
    nn.AdaptiveAvgPool2d{{6, 6}},
    function(x) return x:flatten(1) end,
    nn.Dropout{0.5}, nn.Linear{9216, 4096}, nn.ReLU{inplace=true},
    nn.Dropout{0.5}, nn.Linear{4096, 4096}, nn.ReLU{inplace=true},
    nn.Linear{4096, opt.classes},
  },
  loss      = nn.CrossEntropyLoss{},
  parallel  = { pipe = 2 },
  batch     = { micro_batches = 4, micro_batch_size = 8 },
  optimizer = { "sgd", lr = 0.001, momentum = 0.9 },
  data      = {
    train = strata.data.cifar10{opt.cifar, split="train"},
    test  = strata.data.cifar10{opt.cifar, split="test"},
  },
  steps     = 200,
}
