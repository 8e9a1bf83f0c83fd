#!/usr/bin/env python3
"""The bits of a training are the same on every plan, however tensors lie in memory at the cuts and
whatever functions of the script do to them.

usage: bits.py STRATA MODELS TEST...
"""

import os

import program
from program import require

SCRIPTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "testdata")

# Trains the job of JOB() on many plans of threads, each in turn.
HARNESS = """
local strata = require "strata"
local function make()
%s
end
local function bits(keys)
  keys.transport = "threads"
  local lines = {}
  for i, step in ipairs(make():train(keys)) do
    lines[i] = ("%%.17g %%.17g"):format(step.loss, step.grad_norm)
  end
  return table.concat(lines, ", ")
end
local expected, expected_of_two = bits{pipe = 1}, bits{pipe = 1, data = 2}
print("expected", expected, expected_of_two)
local function compare(what, got, wanted)
  print(got == wanted and "equal" or "DIFFERENT", what, got)
end
for pipe = 1, 4 do
  for _, recompute in ipairs{false, true, "every:1"} do
    local keys = {pipe = pipe, recompute = recompute, schedule = pipe %% 2 == 0 and "gpipe" or "1f1b"}
    compare(("pipe %%d, recompute %%s"):format(pipe, tostring(recompute)), bits(keys), expected)
  end
end
for pipe = 2, 3 do
  compare(("pipe %%d, data 2"):format(pipe), bits{pipe = pipe, data = 2}, expected_of_two)
end
local layers = #make().layers
for cut = 1, layers - 1 do
  compare("cut before layer " .. cut, bits{pipe = 2, partition = {0, cut, layers}}, expected)
end
"""


def check(strata, name):
    script = os.path.join(SCRIPTS, name)
    shown = strata.run("run", strata.write("harness.lua", HARNESS % strata.read(script)))
    require("DIFFERENT" not in shown and shown.count("equal") > 20, "equal bits", shown)
    for flags in [["--pipe=2", "--data=2"], ["--pipe=3", "--recompute=every:1"], ["--pipe=4", "--recompute=true"]]:
        strata.verifies(script, "--transport=gloo", *flags)


def vit(strata):
    check(strata, "vit.lua")


def convnext(strata):
    check(strata, "convnext.lua")


def in_place(strata):
    check(strata, "in_place.lua")


# The models, small, each on the plan that is chosen and on the simplest.
DEFAULTS = """
local strata = require "strata"
local F = strata.F
local function images(rows, size) return function() return F.rand{rows, 3, size, size}, F.randint(10, {rows}) end end
local function tokens(rows) return function() return F.randint(61, {rows, 16}), F.randint(61, {rows, 16}) end end
local small = { vocab = 61, seq = 16, dim = 32, heads = 4, depth = 2 }
local function with(options)
  for name, value in pairs(small) do options[name] = options[name] or value end
  return options
end
local models = {
  alexnet = {{["batch.micro_batch_size"] = 1}}, bert = {with{hidden = 64, rows = 4}}, convnext = {}, digits = {},
  gpt2 = {with{["batch.micro_batch_size"] = 4}, tokens(4)}, llama = {{["batch.micro_batch_size"] = 4}, function()
    return F.randint(256, {4, 64}), F.randint(256, {4, 64})
  end},
  lstm_tagger = {}, mlp = {}, resnet = {{depth = 10, width = 8, pixels = 64, classes = 10,
                                         ["batch.micro_batch_size"] = 4}, images(4, 64)},
  sentences = {}, tabular = {}, textlm = {{dim = 16, heads = 2, depth = 2, seq = 8}},
  transformer = {{vocab = 50, dim = 16, heads = 2, depth = 2, seq = 6}}, two_tower = {}, unet = {}, vae = {}, vit = {},
}
for name, given in pairs(models) do
  for pipe = 2, 3 do
    local keys = { pipe = pipe, steps = 2, transport = "threads", device = "cpu", threads = 1, data = given[2],
                   losses = true }
    local function run(more)
      for key, value in pairs(keys) do more[key] = value end
      local job = strata.load(arg[1] .. "/" .. name .. ".lua", given[1] or {})
      local plan, lines = job:plan{partition = more.partition, schedule = more.schedule, pipe = pipe,
                                   stages_per_rank = more.stages_per_rank, data = given[2], device = "cpu"}, {}
      for i, step in ipairs(job:train(more)) do
        lines[i] = ("%.17g %.17g %s"):format(step.loss, step.grad_norm, strata.json.encode(step.losses))
      end
      return table.concat(lines, ", "), table.concat(plan.bounds, ",") .. " " .. plan:schedule().name
    end
    local bits, plan = run {}
    local expected, plain = run {partition = "parameters", schedule = "1f1b", stages_per_rank = 1}
    print(bits == expected and "equal" or "DIFFERENT", plan ~= plain and "another plan" or "the same", name, plan, plain)
    -- Layers go as far as they can between the steps.
    local function driven(moves)
      local more, lines = { partition = "parameters", schedule = "1f1b", stages_per_rank = 1, steps = 3 }, {}
      for key, value in pairs(keys) do more[key] = more[key] or value end
      local e = strata.load(arg[1] .. "/" .. name .. ".lua", given[1] or {}):start(more)
      local last = e.plan.bounds[#e.plan.bounds]
      for step = 1, 3 do
        lines[step] = ("%.17g"):format(e:train_batch())
        if moves and pipe == 2 then e:recut(step == 1 and {0, 1, last} or {0, last - 1, last}) end
        if moves and pipe == 3 then e:recut(step == 1 and {0, 1, 2, last} or {0, last - 2, last - 1, last}) end
      end
      e:close()
      return table.concat(lines, ", ")
    end
    local moved, unmoved = driven(true), driven(false)
    print(moved == unmoved and "moved" or "DIFFERENT", name, moved, unmoved)
  end
end
"""


def default_plans(strata):
    """What is chosen where a job names no plan has the bits of cuts by parameters with 1f1b."""
    names = sorted(name[:-4] for name in os.listdir(strata.models) if name.endswith(".lua"))
    shown = strata.run("run", strata.write("defaults.lua", DEFAULTS), strata.models, lacks="DIFFERENT")
    require(all("\t%s\t" % name in shown for name in names), "all of %s" % names, shown)
    require(shown.count("moved\t") == 2 * len(names), "layers of all models that moved", shown)
    require(shown.count("another plan") > len(names), "plans that differ", shown)


# Cuts inside layers, with a table of words that the ends share.
INSIDE = """
local strata = require "strata"
local nn = strata.nn
local function options(more)
  local given = {16, 2, dim_feedforward = 32, dropout = 0.2, batch_first = true}
  for name, value in pairs(more) do given[name] = value end
  return given
end
local function words(forward) return strata.tied{"words", nn.Embedding{61, 16}, forward = forward} end
return strata.job {
  layers = {
    words(),
    nn.TransformerEncoderLayer(options{norm_first = true}),
    nn.TransformerDecoderLayer(options{causal = true}),
    nn.TransformerEncoderLayer(options{}),
    words(function(layer, x) return x:matmul(layer.weight:t()) end),
  },
  loss = nn.CrossEntropyLoss{}, batch = {micro_batches = 4, micro_batch_size = 2}, clip = 1.0,
  optimizer = {"adamw", lr = 0.01}, data = {train = strata.data.tokens{61, length = 8, samples = 64}}, steps = 3,
}
"""


def inside(strata):
    """A layer that is cut between its parts has the bits of the whole."""
    script = strata.write("inside.lua", INSIDE)
    for flags in [["--pipe=2", "--partition=0,2.1,5"], ["--pipe=3", "--partition=0,1.1,3.1,5", "--schedule=zb_h1"],
                  ["--pipe=2", "--partition=0,2.1,5", "--data=2", "--zero=2"],
                  ["--pipe=2", "--stages_per_rank=2", "--schedule=zbv", "--partition=0,1.1,2,3.1,5", "--recompute=true"]]:
        for transport in "threads", "gloo":
            strata.verifies(script, "--transport=" + transport, *flags)
    strata.run("plan", script, "--pipe=2", "--partition=0,2.1,5",
               says=["cuts: 0,2.1,5", "2.attention", "2.feed_forward", "0 to 2.0", "2.1 to 4"],
               lacks="1.attention")
    for cuts, why in [("0,2.7,5", "there is no place 2.7 to cut; layer 2 can be cut at 2.1"),
                      ("0,4.1,5", "layer 4 cannot be cut inside; others can, at 1.1, 2.1, 3.1"),
                      ("0,1.1,2.1,5", "3 bounds are needed, one more than stages; these are 4")]:
        strata.run("plan", script, "--pipe=2", "--partition=" + cuts, code=2, says=why)


if __name__ == "__main__":
    program.main(globals())
