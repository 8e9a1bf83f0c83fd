-- A variational autoencoder (Kingma and Welling, 2013) that learns images from themselves.
local strata = require "strata"
local nn, F = strata.nn, strata.F
local train, test = strata.data.npy{"images.npy"}:map(function(x) return x, x end):split{0.9, 0.1}

local Code = strata.layer {          -- mean and logarithm of the variance, and a point drawn from there
  name = "Code",
  init = function(self) self.mean, self.log_var = nn.Linear{64, 4}, nn.Linear{64, 4} end,
  forward = function(self, x)
    local mean, log_var = self.mean(x), self.log_var(x)
    if not self.training then return mean, mean, log_var end
    return mean + (log_var / 2):exp() * F.randn_like(mean), mean, log_var
  end,
}
local Decoder = strata.layer {
  name = "Decoder",
  init = function(self) self.net = nn.Sequential{nn.Linear{4, 64}, nn.ReLU{}, nn.Linear{64, 256}, nn.Sigmoid{}} end,
  forward = function(self, z, mean, log_var) return self.net(z), mean, log_var end,
}

local function loss(output, x)
  local image, mean, log_var = output[1], output[2], output[3]
  local bce = F.binary_cross_entropy(image, x:flatten(1), {reduction = "sum"}) / x:size(0)
  local kl = -0.5 * (1 + log_var - mean^2 - log_var:exp()):sum() / x:size(0)
  return bce + kl, { bce = bce, kl = kl }
end

return strata.job {
  layers    = { nn.Flatten{}, nn.Linear{256, 64}, nn.ReLU{}, Code{}, Decoder{} },
  loss      = loss,
  batch     = { micro_batches = 2, micro_batch_size = 16 },
  optimizer = { "adam", lr = 3e-3 },
  data      = { train = train, test = test },
  epochs    = 10,
}
