#!/usr/bin/env python3
"""Joined weight gradients as users ask for them: `join = true`.

usage: joining.py STRATA MODELS TEST...
"""

import program
from program import require

# Linear layers, tied and in a Sequential, with 8 rows a micro-batch, and a convolution.
JOB = """
local strata = require "strata"
local nn = strata.nn
return strata.job {
  name = "joined",
  layers = { nn.Conv2d{1, 4, 3}, nn.Flatten{}, nn.Linear{144, 64}, nn.ReLU{inplace=true},
             nn.Sequential{nn.Linear{64, 64}, nn.Tanh{}}, strata.tied{"t", nn.Linear{64, 64, false}},
             nn.Dropout{0.1}, strata.tied{"t", nn.Linear{64, 64, false}}, nn.Linear{64, 10} },
  loss = nn.CrossEntropyLoss{},
  batch = { micro_batches = 6, micro_batch_size = 8 },
  parallel = { pipe = 2 }, partition = "parameters", schedule = "1f1b",
  optimizer = { "sgd", lr = 0.05, momentum = 0.9 },
  data = { train = strata.data.digits{} },
  steps = 3, device = "cpu", threads = 1, join = true,
}
"""

EQUAL = "equal within 1e-6 (weight gradients of several micro-batches are one product)"


def the_plan_shows_it(strata):
    strata.write("job.lua", JOB)
    shown = strata.run("plan", "job.lua", "--partition=0,4,9")
    for stage, layers in ((0, "2 Linear"), (1, "4 Sequential, 5 Linear, 7 Linear, 8 Linear")):
        line = "joined weight gradients of stage %d, up to 6 micro-batches at a time: %s\n" % (stage, layers)
        require(line in shown, line, shown)
    plan = strata.plan("job.lua")
    require([stage["joined"] for stage in plan["stages"]] == [6, 6], "6 on both", plan["stages"])
    apart = strata.plan("job.lua", "--join=false")
    require([stage["joined"] for stage in apart["stages"]] == [1, 1], "none", apart["stages"])
    for rank in (0, 1):
        require(plan["memory"][rank]["total"] > apart["memory"][rank]["total"], "more memory",
                plan["memory"])
    most = max(rank["total"] for rank in plan["memory"])
    shown = strata.run("plan", "job.lua", "--memory=%d" % (most - 1))
    require("the memory limit lets stage" in shown, "fewer", shown)


def nothing_to_join(strata):
    strata.write("job.lua", JOB)
    shown = strata.run("plan", "job.lua", "--micro_batches=1")
    require("join = true changes nothing: there is one micro-batch" in shown, "a notice", shown)
    shown = strata.run("plan", "job.lua", "--micro_batch_size=129")
    require("join = true changes nothing: no layer" in shown, "a notice", shown)
    shown = strata.run("plan", "job.lua", "--join=2", code=2)
    require("join" in shown, "the key", shown)
    strata.verifies("job.lua", "--micro_batch_size=129")


def verified(strata):
    strata.write("job.lua", JOB)
    for flags in ([], ["--partition=auto", "--schedule=auto"], ["--schedule=gpipe"], ["--schedule=zb_h1", "--transport=threads"],
                  ["--schedule=zbv", "--stages_per_rank=2"], ["--recompute=true"],
                  ["--data=2", "--zero=1"], ["--pipe=1"]):
        strata.verifies("job.lua", *flags, equal=EQUAL)
    strata.verifies("digits.lua", "--join=true", "--schedule=zb_h1", "--micro_batch_size=8", "--micro_batches=8",
                    equal=EQUAL)
    strata.verifies("job.lua", "--join=false")
    for share, *precision in (("1e-2", "--precision=bf16"), ("2e-3", "--precision=fp16", "--precision.scale=1024")):
        strata.verifies("job.lua", *precision, equal=EQUAL.replace("1e-6", share))


def shared_by_the_model_axis(strata):
    """Ranks that share layers join their own parts."""
    strata.write("job.lua", JOB.replace("nn.Linear{144, 64}", 'nn.Linear{144, 64, split="column"}'))
    shown = strata.run("plan", "job.lua", "--pipe=1", "--model=2")
    require("joined weight gradients of stage 0" in shown, "what is joined", shown)
    strata.verifies("job.lua", "--pipe=1", "--model=2", equal="equal within 1e-6")
    strata.verifies("job.lua", "--pipe=1", "--model=2", "--precision=bf16", equal="equal within 1e-2")


if __name__ == "__main__":
    program.main(globals())
