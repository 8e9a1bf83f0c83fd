-- An LSTM that reads a sequence in both directions and tags each word. The task is made up: the tag says whether the
-- word has come before.
local strata = require "strata"
local nn, F = strata.nn, strata.F

-- Options, each of which is also a flag (--vocab=...):
--   vocab   number of different words
--   seq     words per sequence
--   dim     width of a word's vector
--   hidden  width of the LSTM's state in each direction
--   layers  LSTM layers
local opt = strata.options { vocab = 12, seq = 16, dim = 32, hidden = 48, layers = 2 }

local Tagger = strata.layer {
  name = "Tagger",
  init = function(self)
    self.lstm = nn.LSTM{opt.dim, opt.hidden, num_layers=opt.layers, batch_first=true, bidirectional=true}
  end,
  forward = function(self, x)
    local states = self.lstm(x)       -- as in PyTorch, further results are the last states
    return states
  end,
}

local function sequences(i)
  local words = F.randint(opt.vocab, {16, opt.seq})
  local same = words:unsqueeze(2):eq(words:unsqueeze(1))
  return words, same:tril(-1):any(2):long()
end

return strata.job {
  name      = "lstm_tagger",
  layers    = { nn.Embedding{opt.vocab, opt.dim}, Tagger{}, nn.Linear{2 * opt.hidden, 2} },
  loss      = nn.CrossEntropyLoss{class_dim=-1},  -- a row of scores for each token
  batch     = { micro_batches = 2, micro_batch_size = 16 },
  optimizer = { "adam", lr = 5e-3 },
  clip      = 1.0,
  data      = sequences,
  steps     = 100,
}
