#!/usr/bin/env python3
"""The planner, as its users ask it: strata plan --auto, --simulate and job:search. Nothing trains, and
LibTorch is not there.

usage: planner.py STRATA MODELS TEST...
"""

import resource

import program
from program import require

# GPT-3's proportions: 96 blocks of width 12,288 with 96 heads.
LARGE = """
local strata = require "strata"
local nn = strata.nn
return strata.job {
  name = "large",
  layers = {
    nn.Embedding{51200, 12288, split="row"},
    strata.times(96, function()
      return nn.TransformerEncoderLayer{12288, 96, dim_feedforward=49152, batch_first=true,
        norm_first=true, causal=true, dropout=0, split="sequence"}
    end),
    nn.LayerNorm{12288},
    nn.Linear{12288, 51200, split="column", bias=false},
  },
  loss = nn.CrossEntropyLoss{},
  batch = { size = 1536, micro_batch_size = 1 },
  optimizer = { "adamw", lr = 1e-4 },
  clip = 1.0,
  data = { train = strata.data.tokens{51200, length=2048, samples=1536} },
  steps = 1,
}
"""

# As many layers as asked for, in four kinds that take turns.
LONG = """
local strata = require "strata"
local nn = strata.nn
local opt = strata.options{ layers = 1000 }
local function middle(i)
  local turn = i % 4
  return turn == 1 and nn.ReLU{} or turn == 2 and nn.LayerNorm{64} or nn.Linear{64, 64}
end
return strata.job {
  name = "long",
  layers = { nn.Linear{64, 64}, strata.times(opt.layers - 2, middle), nn.Linear{64, 10} },
  loss = nn.CrossEntropyLoss{},
  batch = { micro_batches = 8, micro_batch_size = 8 },
  optimizer = { "adam", lr = 0.001 },
  data = { train = strata.data.images{ shape = {64}, classes = 10, samples = 512 } },
  device = "cpu",
  steps = 1,
}
"""


def flags_of(keys):
    """The command line's form of a plan's keys."""
    flags = ["--pipe=%d" % keys["parallel"]["pipe"], "--data=%d" % keys["parallel"]["data"],
             "--model=%d" % keys["parallel"]["model"], "--schedule=" + keys["schedule"],
             "--stages_per_rank=%d" % keys["stages_per_rank"], "--zero=%d" % keys["zero"],
             "--partition=" + ",".join(map(str, keys["partition"]))]
    flags += ["--batch.%s=%d" % size for size in keys["batch"].items()]
    again = keys["recompute"]
    return flags + ["--recompute=" + ("every:1" if isinstance(again, dict) else str(again).lower())]


def search(strata):
    """What --auto promises is what --simulate shows of its keys, and its lines make that plan."""
    for flags in (["--gpus=4", "--cluster=8xA100-40"], ["--cluster=4xL4", "--gpus=16", "--link=10gbe"],
                  ["--cluster=cpu", "--gpus=2"]):
        found = strata.plan("transformer.lua", "--auto", *flags)
        steps = [plan["step"] for plan in found["plans"]]
        require(steps == sorted(steps) and steps, "plans, the best first", found)
        for plan in found["plans"][:2]:
            same = strata.plan("transformer.lua", "--simulate", *flags, *flags_of(plan["keys"]),
                               "--gpus=%d" % ranks_of(plan))
            require(abs(same["usual"]["step"] / plan["step"] - 1) < 1e-9, "the same step", same)
            require(same["fits"], "a plan that fits", same)
    text = strata.run("plan", "transformer.lua", "--auto", "--gpus=4", "--cluster=8xA100-40",
                      says="what would beat the first:")
    lines = text.split("the first in a script:\n")[1]
    script = strata.read(strata.models + "/transformer.lua")
    for key in ("partition", "parallel", "schedule", "batch"):
        script = "\n".join(line for line in script.split("\n") if not line.startswith("  %s " % key))
    strata.write("chosen.lua", script.replace("  loss ", lines + "  loss "))
    chosen = strata.plan("chosen.lua")
    best = strata.plan("transformer.lua", "--auto", "--gpus=4", "--cluster=8xA100-40")["plans"][0]
    require(chosen["bounds"] == best["keys"]["partition"], "the plan of the lines", lines)
    require(chosen["ranks"] == ranks_of(best), "its ranks", chosen)


def ranks_of(plan):
    degrees = plan["keys"]["parallel"]
    return degrees["pipe"] * degrees["data"] * degrees["model"]


def pins(strata):
    """Flags of the job hold; more memory is never slower."""
    found = strata.plan("digits.lua", "--auto", "--gpus=8", "--pipe=3", "--schedule=gpipe", "--zero=0")
    for plan in found["plans"]:
        keys = plan["keys"]
        require(keys["parallel"]["pipe"] == 3 and keys["schedule"] == "gpipe" and keys["zero"] == 0,
                "what was given", found)
    little = strata.plan("transformer.lua", "--auto", "--gpus=8", "--memory=3GB")
    enough = strata.plan("transformer.lua", "--auto", "--gpus=8", "--memory=80GB")
    require(enough["plans"][0]["step"] <= little["plans"][0]["step"], "no slower", (little, enough))


def large(strata):
    """1,024 GPUs and 96 blocks: 10 s on two cores."""
    strata.write("large.lua", LARGE)
    found = strata.plan("large.lua", "--auto", "--gpus=1024", "--cluster=8xH100")
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = used.ru_utime + used.ru_stime
    require(seconds < 20, "no more than two cores' 10 s", seconds)
    require(len(found["plans"]) == 5 and len(found["what_if"]) == 3, "five plans", found)
    print("1,024 GPUs: %.1f s of one core" % seconds)
    print(strata.run("plan", "large.lua", "--auto", "--gpus=1024", "--cluster=8xH100"))


def long(strata):
    """Thousands of layers: few steps are simulated, and a plan is at most 1 % slower than equal cuts."""
    strata.write("long.lua", LONG)
    found = strata.plan("long.lua", "--auto", "--gpus=1024", "--budget=1000")
    require(found["plans"] and found["simulated"] < 40000, "plans from few steps", found)
    require(0 <= found.get("missed", 0) < 1, "a bound on what was missed", found)
    flags = ["long.lua", "--layers=5000", "--pipe=64", "--schedule=1f1b", "--stages_per_rank=1"]
    chosen, equal = (strata.plan(*flags, "--partition=" + name) for name in ("auto", "uniform"))
    require(chosen["forecast"]["step"] <= 1.01 * equal["forecast"]["step"], "at most 1 % slower", chosen["bounds"])


def simulate(strata):
    """Thousands of ranks, with what is slow."""
    strata.write("large.lua", LARGE)
    flags = ["large.lua", "--simulate", "--gpus=4096", "--pipe=16", "--model=8", "--micro_batches=48",
             "--batch.size=48", "--recompute=true", "--zero=1"]
    usual = strata.plan(*flags)
    require(len(usual["usual"]["ranks"]) == 16 and usual["ranks"] == 4096, "16 ranks of pipe", usual)
    slow = strata.plan(*flags, "--straggler=300:1.5")
    # At least the straggler's own work, at most all of it beside the usual bubble.
    busy = 1.5 * usual["usual"]["ranks"][1]["busy"]
    least = max(busy, usual["usual"]["step"])
    most = 1.5 * usual["usual"]["step"]
    require(least < slow["slowed"]["step"] < most, "a straggler's step", slow)
    grown = ["transformer.lua", "--simulate", "--cluster=4xL4", "--pipe=4", "--data=2", "--link=10gbe"]
    same = strata.plan(*grown, "--gpus=8")
    require(strata.plan(*grown)["usual"] == same["usual"], "a cluster as large as the job", same)
    text = strata.run("plan", *flags, "--straggler=300:1.5", "--slow_link=node3:8,0-256:2",
                      says=["= 4,096 ranks on 512 nodes", "rank 300 (pipe 1, data 5, model 4) takes 1.5 times",
                            "between node 3 and others take 8 times", "between ranks 0 and 256 take 2 times",
                            "are lost"])
    print(text)


def from_lua(strata):
    """job:search{...} gives keys that job:plan{...} takes."""
    strata.write("search.lua", """
local strata = require "strata"
local job = strata.load(arg[1])
local s = job:search{gpus=8, cluster={base="8xA100-80", memory="40GB", between="10gbe"}, top=2}
assert(#s.plans <= 2 and s.devices == 8)
for _, found in ipairs(s.plans) do
  local plan = job:plan(found.keys)
  assert(#plan.bounds == #found.keys.partition)
  for i, bound in ipairs(plan.bounds) do assert(bound == found.keys.partition[i]) end
  assert(found.step > 0 and found.memory < 40e9)
end
local pinned = job:search{gpus=4, pipe=2, schedule="gpipe"}
for _, found in ipairs(pinned.plans) do assert(found.keys.parallel.pipe == 2) end
print(s.text)
for _, wrong in ipairs{{gpu=8}, {gpus=0}, {cluster="8xH10"}, {cluster={node=1}}, {link="fast"},
                       {partition="uniform"}, {memory="much"}, {top=0}} do
  local ok, why = pcall(job.search, job, wrong)
  assert(not ok)
  print(why)
end
""")
    text = strata.run("run", "search.lua", "transformer.lua")
    for needle in ("the first in a script:", 'did you mean "gpus"', 'did you mean "8xH100"',
                   'did you mean "nodes"', 'there is no link "fast"', "finds the cuts itself",
                   "memory: expected"):
        require(needle in text, needle, text)


# Transformers that need more than a small device has, and recompute in one stage.
MUCH = """
local strata = require "strata"
local nn = strata.nn
return strata.job {
  layers = { nn.Embedding{1000, 256}, strata.times(8, function() return nn.TransformerEncoderLayer{256, 4,
               dim_feedforward=1024, dropout=0, batch_first=true, norm_first=true, causal=true} end),
             nn.Linear{256, 1000} },
  loss = nn.CrossEntropyLoss{class_dim=-1},
  batch = { micro_batches = 4, micro_batch_size = 8 },
  optimizer = { "adamw", lr = 1e-4 },
  data = { train = strata.data.tokens{1000, length=256, samples=32} },
}
"""


def fits(strata):
    """A plan that does not fit says so first, with ways that do; recomputation that saves nothing is noted."""
    strata.write("much.lua", MUCH)
    here = ["--device=cpu", "--threads=1"]
    simulated = ["--simulate", "--cluster=8xH100"]
    small = [*simulated, "--memory=1.55GB"]  # of which 1.25 GiB are not for the training
    text = strata.run("plan", "much.lua", *small)
    first, _, *lines = text.split("\n")
    require(first.startswith("this plan does not fit: the fullest rank needs "), "the first line", text)
    record = strata.plan("much.lua", *small)
    require(not record["fits"] and 0 < len(record["ways"]) <= 3, "ways", record)
    for way, line in zip(record["ways"], lines):
        require(line.startswith(way["flags"]), "a line for each way", text)
        same = strata.plan("much.lua", *small, *way["flags"].split())
        require(same["fits"] and same["usual"]["memory"] == way["memory"], "a plan that fits", (way, same))
        require(same["usual"]["step"] == way["step"], "its step", (way, same))
    require("does not fit" not in strata.run("plan", "much.lua", *simulated), "a plan that fits", text)

    text = strata.run("plan", "much.lua", *here, "--memory=250MB", code=2)
    require("to make it fit, the cheapest first" in text, "ways", text)
    flags = next(line for line in text.split("\n") if line.startswith("--")).split("  ")[0].split()
    strata.run("plan", "much.lua", *here, "--memory=250MB", *flags)
    trained = strata.run("train", "much.lua", *here, "--memory=250MB", code=2)
    require("to make it fit, the cheapest first" in trained and "\n%s  " % " ".join(flags) in trained, "ways", trained)

    note = "recompute = true saves nothing here"
    for flags in (here, simulated):
        require(note in strata.run("plan", "much.lua", *flags, "--recompute=true"), note, flags)
        for other in ("--recompute=false", "--recompute=every:1"):
            require(note not in strata.run("plan", "much.lua", *flags, other), "no note", other)

    text = strata.run("plan", "much.lua", "--device=cuda", "--schedule=1f1b", code=2,
                      environment={"CUDA_VISIBLE_DEVICES": ""})
    again = text.strip().split("\n")[-1].split()
    require(again[:2] == ["strata", "plan"] and "--device=cuda" not in again, "a command", text)
    require(again[-3:] == ["--simulate", "--cluster=8xH100", "--gpus=64"], "of a cluster", text)
    strata.run("plan", *again[2:])


def published(strata):
    """models/llama.lua has the published numbers of parameters."""
    strata.write("count.lua", """
local strata = require "strata"
for _, variant in ipairs{"1b", "7b", "8b", "70b", "405b"} do
  local count = 0
  for _, layer in ipairs(strata.load("%s/llama.lua", {variant=variant}).layers) do count = count + layer.parameters end
  print(("%%s %%d"):format(variant, count))
end
print(#strata.load("%s/llama.lua", {variant="70b", depth=2}).layers)  -- an option that is given holds
""" % (strata.models, strata.models))
    text = strata.run("run", "count.lua")
    require(text.split() == "1b 1100048384 7b 6738415616 8b 8030261248 70b 70553706496 405b 405853388800 5".split(),
            "their parameters", text)
    require("--variant is small, 1b, 7b" in strata.run("plan", "llama.lua", "--variant=9b", code=2), "names", text)


def wrong(strata):
    """What cannot be asked is said to be wrong."""
    for flags, needle in (
            (["--gpus=8"], "--gpus belongs to --auto or --simulate"),
            (["--auto", "--simulate"], "give one of them"),
            (["--budget=3"], "--budget belongs to --auto"),
            (["--auto", "--budget=0"], "budget"),
            (["--auto", "--straggler=1:2"], "--straggler belongs to --simulate"),
            (["--auto", "--nproc=4"], "take --gpus"),
            (["--auto", "--gpus=12"], "no whole number of nodes"),
            (["--auto", "--costs=mine.costs"], "--costs is of this machine"),
            (["--auto", "--write_costs=mine.costs"], "--write_costs is of this machine"),
            (["--auto", "--cluster=9xH100"], "there is no cluster"),
            (["--auto", "--memory=1.3GiB"], "no plan fits"),
            (["--auto", "--schedule=inference"], "--schedule=inference has no backwards"),
            (["--simulate", "--gpus=4", "--straggler=9:2"], "there is no rank"),
            (["--simulate", "--gpus=4", "--slow_link=0-3:2"], "send each other nothing"),
            (["--simulate", "--gpus=7", "--pipe=2"], "does not divide")):
        script = "transformer.lua" if "--memory=1.3GiB" in flags else "digits.lua"
        strata.run("plan", script, *flags, code=2, says=needle)


if __name__ == "__main__":
    program.main(globals())
