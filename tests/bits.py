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
    with open(script) as file:
        harness = strata.write("harness.lua", HARNESS % file.read())
    shown = strata.run("run", harness)
    require("DIFFERENT" not in shown and shown.count("equal") > 20, "equal bits", shown)
    for flags in [["--pipe=2", "--data=2"], ["--pipe=3", "--recompute=every:1"],
                  ["--pipe=4", "--recompute=true"]]:
        shown = strata.run("verify", script, "--transport=gloo", *flags)
        require("equal bit for bit" in shown, "equal bit for bit", shown)


def vit(strata):
    check(strata, "vit.lua")


def convnext(strata):
    check(strata, "convnext.lua")


def in_place(strata):
    check(strata, "in_place.lua")


if __name__ == "__main__":
    program.main(globals())
