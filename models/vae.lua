-- A variational autoencoder (Kingma and Welling, 2013) for the handwritten digits that come with Strata. Its loss is
-- the error of reconstruction plus the divergence of the code from a normal distribution; the log shows both parts.
local strata = require "strata"
local nn, F = strata.nn, strata.F

-- Options, each of which is also a flag (--hidden=...):
--   hidden  width of the hidden layers
--   code    numbers in the code of an image
--   beta    weight of the divergence in the loss
local opt = strata.options { hidden = 128, code = 8, beta = 1.0 }

-- Draws a code from its mean and the logarithm of its variance, and passes both on to the loss.
local Draw = strata.layer {
  name = "Draw",
  init = function(self)
    self.mean, self.log_variance = nn.Linear{opt.hidden, opt.code}, nn.Linear{opt.hidden, opt.code}
  end,
  forward = function(self, x)
    local mean, log_variance = self.mean(x), self.log_variance(x)
    return mean + (0.5 * log_variance):exp() * F.randn_like(mean), mean, log_variance
  end,
}

local Decoder = strata.layer {
  name = "Decoder",
  init = function(self)
    self.net = nn.Sequential{nn.Linear{opt.code, opt.hidden}, nn.ReLU{}, nn.Linear{opt.hidden, 64}}
  end,
  forward = function(self, code, mean, log_variance) return self.net(code), mean, log_variance end,
}

local function loss(given, target)
  local output, mean, log_variance = given[1], given[2], given[3]
  local n = output.shape[1]
  local reconstruction = F.binary_cross_entropy_with_logits(output, target:flatten(1), {reduction="sum"}) / n
  local divergence = -0.5 * (1 + log_variance - mean^2 - log_variance:exp()):sum() / n
  return reconstruction + opt.beta * divergence, { reconstruction = reconstruction, divergence = divergence }
end

-- Each image is its own target.
local function images(split)
  return strata.data.digits{split=split}:map(function(x) return x, x end)
end

return strata.job {
  name      = "vae",
  layers    = { nn.Flatten{}, nn.Linear{64, opt.hidden}, nn.ReLU{}, Draw{}, Decoder{} },
  loss      = loss,
  batch     = { micro_batches = 2, micro_batch_size = 32 },
  optimizer = { "adam", lr = 2e-3 },
  data      = { train = images("train"), test = images("test") },
  epochs    = 8,
}
