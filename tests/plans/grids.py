#!/usr/bin/env python3
"""The Transformers, small and with dropout, on every kind of grid, against one rank that does all.

usage: grids.py STRATA MODELS TEST...
"""

import re

import program
from program import require, steps

STEPS = 2
MICRO_BATCHES = 4  # of all replicas
GRIDS = [(pipe, data, model) for model in [1, 2] for data in [1, 2] for pipe in [1, 2]]

# All grids as threads of one process.
THREADS = """
local job = require("strata").load("job.lua")
for _, grid in ipairs{%s} do
  local pipe, data, model = unpack(grid)
  local count = %d / data
  local history = job:train{
    parallel = { pipe = pipe, data = data, model = model }, transport = "threads", threads = 1,
    steps = %d,
    batch = { micro_batches = count, micro_batch_size = 4, size = 4 * count } }
  for _, step in ipairs(history) do
    print(("%%d %%d %%d %%.17g %%.17g"):format(pipe, data, model, step.loss, step.grad_norm))
  end
end
"""


def write_job(strata, model, options):
    """job.lua: the model with these options, and nothing to evaluate."""
    text = strata.read("%s/%s.lua" % (strata.models, model))
    for name, value in options.items():
        text, found = re.subn(r"\b%s = \d+" % name, "%s = %d" % (name, value), text, count=1)
        require(found, "an option " + name, text)
    strata.write("job.lua", re.sub(r"\n *test +=.*", "", text))


def over_threads(strata):
    """(loss, gradient norm) of the steps on each grid."""
    grids = ", ".join("{%d, %d, %d}" % grid for grid in GRIDS)
    shown = strata.run("run", strata.write("all.lua", THREADS % (grids, MICRO_BATCHES, STEPS)))
    found = {grid: [] for grid in GRIDS}
    for line in shown.splitlines():
        pipe, data, model, loss, norm = line.split()
        found[int(pipe), int(data), int(model)].append((float(loss), float(norm)))
    return found


def over_gloo(strata):
    found = {}
    for pipe, data, model in GRIDS[1:]:  # but for one rank
        count = MICRO_BATCHES // data
        strata.run("train", "job.lua", "--transport=gloo", "--threads=1", "--log=log.jsonl",
                   "--steps=%d" % STEPS, "--pipe=%d" % pipe, "--data=%d" % data,
                   "--model=%d" % model, "--batch.size=%d" % (4 * count),
                   "--micro_batches=%d" % count, "--micro_batch_size=4")
        found[pipe, data, model] = [(step["loss"], step["grad_norm"]) for step in steps(strata.path("log.jsonl"))]
    return found


def expect_equal(strata, model, options):
    """The pipe axis and the transport keep the bits; the other axes round sums in another order."""
    write_job(strata, model, options)
    threads, gloo = over_threads(strata), over_gloo(strata)
    require(all(len(taken) == STEPS for taken in threads.values()), "all steps", threads)
    require(all(threads[grid] == gloo[grid] for grid in gloo), "the bits of threads over Gloo", (threads, gloo))
    alone = threads[1, 1, 1]
    for (pipe, data, shared), taken in threads.items():
        require(taken == threads[1, data, shared], "the bits of (1, %d, %d) on (%d, %d, %d)" % (
            data, shared, pipe, data, shared), threads)
        require(all(abs(a - b) <= 1e-6 * b for step, whole in zip(taken, alone)
                    for a, b in zip(step, whole)),
                "%s like (1, 1, 1) within 1e-6" % ((pipe, data, shared),), threads)


def transformer(strata):
    expect_equal(strata, "transformer", {"vocab": 48, "dim": 16, "heads": 2, "depth": 2, "seq": 6})


def textlm(strata):
    expect_equal(strata, "textlm", {"dim": 16, "heads": 2, "depth": 2, "seq": 8})


if __name__ == "__main__":
    program.main(globals())
