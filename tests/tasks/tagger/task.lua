-- Tags the words of sentences of many lengths: a line of words and one of tags each.
local strata = require "strata"
local nn, F = strata.nn, strata.F
local sentences = strata.json.decode(strata.read "sentences.json")

local Tagger = strata.layer {
  name = "Tagger",
  init = function(self)
    self.embedding = nn.Embedding{12, 32}
    self.lstm = nn.LSTM{32, 32, batch_first = true, bidirectional = true}
  end,
  forward = function(self, words, mask)
    local states = self.lstm(self.embedding(words) * mask:unsqueeze(2))
    return states
  end,
}

local train, test = strata.dataset {
  length = #sentences, ragged = true,
  get = function(i) return F.tensor(sentences[i + 1].words), F.tensor(sentences[i + 1].tags) end,
}:split{0.9, 0.1}

return strata.job {
  layers    = { Tagger{}, nn.ReLU{}, nn.Linear{64, 2} },
  loss      = nn.CrossEntropyLoss{},            -- ignores -100, which fills targets up
  batch     = { micro_batches = 2, micro_batch_size = 16 },
  optimizer = { "adam", lr = 1e-2 },
  data      = { train = train, test = test, collate = "pad" },
  eval      = { metric = "accuracy" },
  epochs    = 6,
}
