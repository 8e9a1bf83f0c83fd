-- Pictures of plans, as text.
local strata = require "strata"
local expect = require "expect"
local nn = strata.nn

local plan = strata.job{
  name = "</script><svg onload=x> & co", input = {shape = {8}}, device = "cpu",
  layers = {nn.Linear{8, 8, name = "a<b"}, nn.ReLU{}, nn.Linear{8, 2}},
  loss = nn.CrossEntropyLoss{}, batch = {micro_batches = 3, micro_batch_size = 4},
  partition = "parameters", schedule = "1f1b",
}:plan{pipe = 2}

local svg = plan:svg()
expect.equal(svg:sub(1, 5), "<svg ")
expect.equal(svg:find("<svg onload", 1, true), nil)
expect.equal(svg:find(">B2</text>", 1, true) ~= nil, true)

local html = plan:html()
expect.equal(html:find("<svg onload", 1, true), nil)
local json = html:match('<script id="data" type="application/json">(.-)</script>')
local data = strata.json.decode(json)
expect.equal(data.title, "</script><svg onload=x> & co")
expect.equal(data.layers[1][1], "a<b")
expect.equal(#data.timelines[1].lanes, 2)
expect.equal(data.timelines[1].span, 12)
