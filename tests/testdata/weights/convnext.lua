-- ConvNeXt with torchvision's names, convnext_tiny by default; without stochastic depth.
local strata = require "strata"
local nn = strata.nn
local opt = strata.options { width = 96, depths = {3, 3, 9, 3}, classes = 1000, pixels = 224 }

-- A function each time: layers that are one function would have one name.
local function to_last() return function(x) return x:permute(0, 2, 3, 1) end end
local function to_first() return function(x) return x:permute(0, 3, 1, 2) end end
local function norm(name, channels) return nn.LayerNorm{channels, eps = 1e-6, name = name} end

local Scale = strata.layer {
  name = "Scale",
  init = function(self, channels) self.layer_scale = self:parameter{channels, 1, 1, fill = 1e-6} end,
  forward = function(self, x) return x * self.layer_scale end,
}

local function stage(s)
  local channels, place = opt.width * 2 ^ s, 2 * s
  local from, down = s == 0 and 3 or channels / 2, "features." .. place
  local conv = nn.Conv2d{from, channels, kernel_size = s == 0 and 4 or 2, stride = s == 0 and 4 or 2,
    name = down .. (s == 0 and ".0" or ".1")}
  local smaller = s == 0 and {conv, to_last(), norm(down .. ".1", channels), to_first()}
    or {to_last(), norm(down .. ".0", from), to_first(), conv}
  return { smaller, strata.times(opt.depths[s + 1], function(i)
    local name = "features." .. place + 1 .. "." .. i
    return {
      strata.skip{name},
      nn.Conv2d{channels, channels, kernel_size = 7, padding = 3, groups = channels, name = name .. ".block.0"},
      to_last(), norm(name .. ".block.2", channels), nn.Linear{channels, 4 * channels, name = name .. ".block.3"},
      nn.GELU{}, nn.Linear{4 * channels, channels, name = name .. ".block.5"}, to_first(),
      Scale{channels, name = name}, strata.join{name},
    }
  end) }
end

return strata.job {
  name   = "convnext",
  input  = { shape = {3, opt.pixels, opt.pixels} },
  layers = {
    strata.times(4, stage),
    nn.AdaptiveAvgPool2d{1}, nn.Flatten{}, norm("classifier.0", 8 * opt.width),
    nn.Linear{8 * opt.width, opt.classes, name = "classifier.2"},
  },
  loss      = nn.CrossEntropyLoss{},
  batch     = { micro_batches = 4, micro_batch_size = 8 },
  optimizer = { "adamw", lr = 3e-4 },
  data      = { train = strata.data.images{shape = {3, opt.pixels, opt.pixels}, classes = opt.classes} },
  steps     = 20,
}
