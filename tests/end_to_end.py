#!/usr/bin/env python3
"""The program as its users run it: each test is a command line and what must come of it.

usage: end_to_end.py STRATA MODELS TEST...
"""

import itertools
import json
import math
import os
import re
import threading

import program
from program import require, steps

ALEXNET = [23296, 0, 0, 307392, 0, 0, 663936, 0, 884992, 0, 590080, 0, 0, 0, 0, 0, 37752832, 0, 0, 16781312, 0, 40970]


def digits(strata):
    """Trains the main model on two processes to 97 % of the held-out digits."""
    shown = strata.run("train", "digits.lua")
    accuracy = re.search(r"accuracy (\d\.\d+)", shown)
    require(accuracy and float(accuracy.group(1)) >= 0.97, "accuracy of at least 0.97", shown)


def verify(strata):
    """Three stages give the bits of one, over both transports and for both schedules."""
    for transport in ["threads", "gloo"]:
        for schedule in ["1f1b", "gpipe"]:
            strata.verifies("digits.lua", "--pipe=3", "--schedule=" + schedule, "--transport=" + transport)


def schedules(strata):
    """Every schedule trains as one stage does, with two stages per rank where it has them."""
    for schedule, stages, transport in [
            ("interleaved_1f1b", 2, "gloo"), ("looped_bfs", 2, "threads"), ("zb_h1", 1, "threads"),
            ("zb_h2", 1, "gloo"), ("interleaved_zb", 2, "threads"), ("zbv", 2, "gloo"),
            ("v_half", 2, "threads"), ("v_min", 2, "threads"), ("dualpipev", 2, "threads")]:
        strata.verifies("digits.lua", "--pipe=2", "--schedule=" + schedule, "--stages_per_rank=%d" % stages,
                        "--transport=" + transport)
    for recompute in ["true", "every:2", "type:Linear"]:
        strata.verifies("digits.lua", "--pipe=2", "--recompute=" + recompute, "--transport=threads")
    strata.run("train", "digits.lua", "--pipe=2", "--stages_per_rank=2", "--schedule=auto", "--steps=2",
               says=["2 stages on each rank", "test loss"])


NET = """
local strata = require "strata"
local nn = strata.nn
local schedule = SCHEDULE
return strata.job {
  layers    = { nn.Flatten{}, nn.Linear{64, 48}, nn.GELU{}, nn.Linear{48, 10} },
  loss      = nn.CrossEntropyLoss{},
  partition = "uniform",
  parallel  = { pipe = 2 },
  schedule  = schedule,
  batch     = { micro_batches = 4, micro_batch_size = 8 },
  optimizer = { "sgd", lr = 0.1 },
  data      = { train = strata.data.digits{}, test = strata.data.digits{split="test"} },
  steps     = 5,
  device    = "cpu",
}
"""

FUNCTION = """function(ranks, stages_per_rank, micro_batches)
  local rows = {}
  for r = 1, ranks do
    rows[r] = {}
    for _, kind in ipairs{"F", "B"} do
      for m = 0, micro_batches - 1 do table.insert(rows[r], (r - 1) .. kind .. m) end
    end
  end
  return rows
end"""


def users_schedules(strata):
    """Files that torch wrote, a function, and what is wrong with a file."""
    with open("tests/golden/torch_pipelining.json") as file:
        orders = {(entry["schedule"], entry["ranks"]): entry for entry in json.load(file)["schedules"]}

    def script(schedule):
        return strata.write("net.lua", NET.replace("SCHEDULE", schedule))

    def write(rows):
        strata.write("mine.csv", "".join(",".join(row) + "\n" for row in rows))

    for name, equal in [("ScheduleZBVZeroBubble", "equal bit for bit"),
                        ("ScheduleInterleaved1F1B", "equal bit for bit"),
                        ("ScheduleLoopedBFS", "equal within 1e-6")]:
        order = orders[name, 2]["order"]
        write([order["0"], order["1"]])
        strata.verifies(script('"mine.csv"'), equal=equal)

    strata.verifies(script(FUNCTION))
    strata.run("train", script(FUNCTION), "--transport=threads")

    write([["0F0", "0F1", "0F2", "0F3", "0B0", "0B1", "0B2", "0B3"],
           ["1F0", "1B0", "1F1", "1B1", "1B2", "1F2", "1F3", "1B3"]])
    strata.run("plan", script('"mine.csv"'), code=2, says=["CSV file", "[1B2]"])
    strata.run("plan", script('"none.csv"'), code=2, says="cannot read the file")


def verify_models(strata):
    """The Transformers, small, with dropout."""
    for model, flags in [
            ("transformer.lua", ["--vocab=50", "--dim=16", "--heads=2", "--depth=2", "--seq=6"]),
            ("textlm.lua", ["--dim=16", "--heads=2", "--depth=2", "--seq=8"])]:
        strata.verifies(model, "--pipe=2", *flags)


BOUNDARIES = """
local strata = require "strata"
local nn, F = strata.nn, strata.F
return strata.job {
  layers = {
    nn.Embedding{10, 8}, strata.skip{"embedded"}, nn.Dropout{0.2}, nn.Linear{8, 8},
    function(x) return x, x:gt(0), F.arange(x.shape[1]) end,
    strata.cut(),
    function(x, mask, index) return x:masked_fill(mask, 0.5):index_select(0, index) end,
    strata.cut(),
    nn.GELU{}, strata.join{"embedded", how="cat", dim=2},
    function(x) return x:mean(1) end, nn.Linear{16, 2},
  },
  loss = nn.CrossEntropyLoss{}, optimizer = {"adamw", lr = 0.01}, steps = 4,
  batch = { micro_batches = 4, micro_batch_size = 4 },
  data = function(i)
    local rows, length = i == 0 and 4 or 2 + i % 3, 3 + i % 4
    return F.arange(rows * length):view(rows, length):add(i):remainder(10),
           F.arange(rows):add(i):remainder(2)
  end,
}
"""


def verify_boundaries(strata):
    """Several tensors, masks, a connection past a stage and changing shapes, between processes."""
    strata.write("boundaries.lua", BOUNDARIES)
    for schedule in ["1f1b", "gpipe"]:
        strata.verifies("boundaries.lua", "--pipe=3", "--transport=gloo", "--schedule=" + schedule)
    losses = []
    for recompute in [[], ["--recompute=every:2"]]:
        log = strata.path("log%d.jsonl" % len(losses))
        strata.run("train", strata.path("boundaries.lua"), "--pipe=3", "--transport=gloo", "--log=" + log, *recompute)
        losses.append([(step["loss"], step["grad_norm"]) for step in steps(log)])
    require(len(losses[0]) == 4 and losses[0] == losses[1], "equal losses, recomputed", losses)


def replicas(strata):
    """What is shown of two replicas of two stages; ZeRO has the bits of none."""
    losses = {}
    for name, flags in [("one", ["--pipe=1", "--data=1", "--micro_batches=4"]),
                        ("four", ["--pipe=2", "--nproc=4", "--micro_batches=2"]),
                        ("zero", ["--pipe=2", "--data=2", "--micro_batches=2", "--zero=1"]),
                        ("zero2", ["--pipe=2", "--data=2", "--micro_batches=2", "--zero=2"])]:
        log = strata.path("replicas.jsonl")
        shown = strata.run("train", "transformer.lua", "--steps=3", "--micro_batch_size=4",
                           "--comm_log", "--log=" + log, "--vocab=50", "--dim=16", "--heads=2",
                           "--depth=2", "--seq=6", *flags)
        for collective, when in [("all_reduce", ["four"]), ("reduce_scatter", ["zero", "zero2"])]:
            sums = re.search(collective + r" +data +2 +\d+ KiB", shown)  # of gradients
            require(bool(sums) == (name in when), "the collectives of " + name, shown)
        pipes = re.search(r"send +pipe +2 ", shown) and re.search(r"recv +pipe +2 ", shown)
        require(bool(pipes) == (name != "one"), "the messages of " + name, shown)
        require(("2 replicas x 2 micro-batches of 4" in shown) == (name != "one"), "the batch of " + name, shown)
        losses[name] = [step["loss"] for step in steps(log)]
    require(len(losses["four"]) == 3 and losses["four"] == losses["zero"] == losses["zero2"], "equal bits", losses)


def model_axis(strata):
    """verify compares ranks that share layers with one that does not."""
    for model, flags in [
            ("transformer.lua", ["--vocab=48", "--dim=16", "--heads=2", "--depth=2", "--seq=6"]),
            ("textlm.lua", ["--dim=16", "--heads=2", "--depth=2", "--seq=8"])]:
        strata.verifies(model, "--pipe=2", "--model=2", "--transport=gloo", *flags, equal="equal within 1e-6")


def plan_alexnet(strata):
    plan = strata.plan("alexnet.lua", "--pipe=2", "--device=cpu", "--partition=parameters")
    require([layer["parameters"] for layer in plan["layers"]] == ALEXNET, "AlexNet's parameters", plan)
    require(plan["bounds"] == [0, 19, 22], "cuts 0, 19, 22", plan["bounds"])
    strata.run("plan", "alexnet.lua", "--pipe=2", "--partition=parameters", says=["37,752,832", "0, 19, 22"])


def train_alexnet(strata):
    log = strata.path("alexnet.jsonl")
    strata.run("train", "alexnet.lua", "--pipe=2", "--steps=2", "--log=" + log)
    done = steps(log)
    require(len(done) == 2 and abs(done[0]["loss"] - math.log(10)) < 0.2, "two steps from ln 10", done)


def train_transformer(strata):
    log = strata.path("transformer.jsonl")
    shown = strata.run("train", "transformer.lua", "--pipe=2", "--steps=2", "--schedule=gpipe",
                       "--micro_batches=4", "--losses", "--depth=2", "--dim=64", "--log=" + log)
    done = steps(log)
    require(len(done) == 2 and len(done[0]["micro_batch_losses"]) == 4, "four losses a step", done)
    mean = sum(done[0]["micro_batch_losses"]) / 4
    require(abs(mean - done[0]["loss"]) < 1e-9 * mean, "the mean of equal micro-batches", done)
    require("%.3f" % done[0]["micro_batch_losses"][3] in shown, "the micro-batches' losses", shown)


def repl(strata):
    """Load a job, look, change method and stages, see cuts, schedule and picture, train."""
    shown = strata.run("repl", os.path.join(strata.models, "digits.lua"), stdin="""
print(job)
plan = job:plan{pipe=2}
plan
table.concat(job:plan{pipe=3, partition="uniform"}.bounds, " ")
s = strata.schedule("1f1b", {ranks=3, micro_batches=4})
print(s:csv())
print(s:gantt())
history = job:train{steps=5, transport="threads", pipe=3}
#history
history[5].loss < history[1].loss
""")
    require("0F0" in shown and "2B3" in shown, "the schedule", shown)
    require("0 4 7 10" in shown, "uniform cuts of ten layers", shown)
    lines = shown.split("\n")
    require("5" in lines and "true" in lines, "five steps and a falling loss", shown)


def log_file(strata):
    log = strata.path("digits.jsonl")
    strata.run("train", "digits.lua", "--steps=3", "--log=" + log, "--losses")
    done = steps(log)
    require([record["step"] for record in done] == [0, 1, 2], "steps 0, 1, 2", done)
    for record in done:
        require(all(math.isfinite(record[key]) for key in ["loss", "grad_norm", "lr", "seconds"]),
                "finite numbers", record)
        require(record["peak_memory"] > 1 << 20 and record["samples"] == 64, "memory, samples", record)


NOT_FINITE_JOB = """
local strata = require 'strata'
local nn, F = strata.nn, strata.F
local scale = function(x) return x:size(0) == 5 and x / 0 or x * 1 end  -- in the third step
return strata.job{
  layers = {nn.Linear{4, 8, split="column"}, nn.Tanh{}, scale, nn.Linear{8, 2}}, input = {shape = {4}},
  partition = {0, 2, 4}, parallel = {pipe = 2},
  loss = nn.CrossEntropyLoss{}, optimizer = {"adamw", lr = 0.01}, device = "cpu", threads = 1, steps = 5,
  batch = {micro_batches = 2, micro_batch_size = 4}, save = {dir = "saves"},
  data = function(i)
    local rows = i == 5 and 5 or 4
    return F.arange(4 * rows):view(rows, 4):add(i):sin(), F.arange(rows):remainder(2)
  end,
}
"""


def not_finite(strata):
    job = strata.write("job.lua", NOT_FINITE_JOB)
    shown = strata.run("train", job, code=1)
    why = ("(stage 1, micro-batch 1) gives an output that is not finite: float32 (5, 8), "
           "0 NaN and 40 Inf of 40 values")
    require(shown.count("step 3 was not taken: the loss is nan") == 1, "one report", shown)
    require("job.lua:4: layer 2 function(" in shown and why in shown, why, shown)
    require("saved step 2 to" in shown, "the last good step", shown)
    shown = strata.run("train", job, "--resume=latest", "--nonfinite=skip", "--log=log.jsonl",
                       says=["step 3 was left out: the loss is nan", "skipped 1"])
    require([step.get("skipped") for step in steps(strata.path("log.jsonl"))] == [1, 1, 1],
            "three steps behind the save", shown)
    shown = strata.run("train", job, "--save.dir=none", "--nonfinite=warn")
    require(shown.count("counts although") == 1, "one warning", shown)
    strata.run("train", job, "--save.dir=none", "--nonfinite=skip", "--model=2",
               says=["step 5/5  loss 0.", "skipped 1"])
    strata.run("verify", job, code=1)


def run_file(strata):
    hello = strata.write("hello.lua", "local strata = require 'strata'\nlocal F = strata.F\n"
                                      "print(arg[1], F.arange(4):add(3):tolist()[4])\n")
    shown = strata.run("run", hello, "word")
    require(shown.split() == ["word", "6"], "word 6", shown)
    strata.write("net.lua", "local opt = require('strata').options{depth = 1}\n"
                            "return require('strata').job{input = {shape = {2}}, layers = require('strata').times(opt.depth,"
                            " function() return require('strata').nn.Linear{2, 2} end)}\n")
    sweep = strata.write("sweep.lua", "local strata = require 'strata'\n"
                                      "local opt = strata.options{depth = 1}\n"
                                      "print(#strata.load('net.lua', {depth = opt.depth}).layers, arg[1])\n")
    require(strata.run("run", sweep, "--depth=3", "word").split() == ["3", "word"], "3 word", shown)
    strata.run("run", sweep, "--dept=3", code=2, says='did you mean "depth"?')


def time_limits(strata):
    """Both have a flag, and each says so."""
    net = """local strata = require "strata"
%s
return strata.job{
  input = {shape = {4}}, layers = {strata.nn.Linear{4, 4}}, loss = strata.nn.MSELoss{}, device = "cpu",
  data = {train = function(i) return strata.F.ones{2, 4}, strata.F.ones{2, 4} end}, steps = 1,
  batch = {micro_batches = 1, micro_batch_size = 2},
}
"""
    strata.write("endless.lua", net % "while true do end")
    strata.write("slow.lua", net % "for i = 1, 2e6 do end")
    for command in ("plan", "train", "verify"):
        strata.run(command, "endless.lua", "--script_timeout=0.2", code=2,
                   says=["endless.lua:2: the script takes longer than 200 ms", "--script_timeout=SECONDS"])
    strata.write("pattern.lua", net % "local s = ('a'):rep(30000):find(('.-'):rep(12) .. 'b')")
    for command in ("plan", "train"):
        strata.run(command, "pattern.lua", "--script_timeout=0.2", code=2,
                   says="pattern.lua:2: the script takes longer than 200 ms")
    strata.run("plan", "slow.lua", "--script_timeout=0.01", code=2)
    strata.run("train", "slow.lua", "--script_timeout=0", "--prepare_timeout=0")
    for command in ("train", "verify"):
        strata.run(command, "endless.lua", "--script_timeout=0", "--prepare_timeout=0.5", code=1,
                   says=["took more than 500 ms", "--prepare_timeout=SECONDS"])


def changing_job(strata):
    """A script that reads what changes: the ranks notice that they would train different jobs."""
    number = strata.path("number.txt")
    done = threading.Event()

    def count():
        for i in itertools.count(2):
            with open(number + ".new", "w") as file:
                file.write(str(i))
            os.replace(number + ".new", number)
            if done.wait(0.01):
                return

    strata.write("changing.lua", """local strata = require "strata"
local number = strata.read("number.txt")
repeat until strata.read("number.txt") ~= number  -- whoever reads it next finds another
return strata.job{
  input = {shape = {4}}, layers = {strata.nn.Linear{4, 4}, strata.nn.Linear{4, 2}},
  loss = strata.nn.CrossEntropyLoss{}, batch = {micro_batches = 2, micro_batch_size = 2},
  data = {train = function(i) return strata.F.ones{2, 4}, strata.F.tensor{0, 1} end},
  parallel = {pipe = 2}, device = "cpu", steps = tonumber(number),
}
""")
    strata.write("number.txt", "1")
    counter = threading.Thread(target=count)
    counter.start()
    try:
        shown = strata.run("train", strata.path("changing.lua"), code=2)
    finally:
        done.set()
        counter.join()
    cause = re.search(r"rank ([01]): \S*changing.lua gives another job each time that it is evaluated: "
                      r"steps: (\d+) against (\d+)", shown)
    require(cause and int(cause.group(2)) < int(cause.group(3)), "the key and both values", shown)
    require(shown.count(cause.group(0)) == 1, "the cause once", shown)


MANY = """local strata = require "strata"
local nn, row = strata.nn, strata.F.ones{1, 8}
return strata.job {
  layers = {strata.times(strata.options{layers = 8}.layers, function()
    return {nn.Linear{8, 8}, function(x) print("a forward is made") return x end}
  end)},
  loss = nn.MSELoss{}, optimizer = {"sgd", lr = 0.01}, steps = 2, transport = "gloo", partition = "uniform",
  batch = {micro_batches = 2, micro_batch_size = 1},
  data = {train = function() return row, row end},
  schedule = function(ranks, stages, micro_batches)
    print("a program is made")
    local rows = {}
    for stage = 0, ranks - 1 do rows[stage + 1] = ("SF0,SF1,SB0,SB1"):gsub("S", stage) end
    return table.concat(rows, "\\n")
  end,
}
"""


def grid_of_ranks(strata, pipe, data):
    """All of them begin and end. Only the starter makes their programs: if each rank made its own, all of them
    would wait longer for every rank that there is."""
    strata.write("many.lua", MANY)
    strata.run("train", "many.lua", "--pipe=%d" % pipe, "--data=%d" % data, "--layers=%d" % pipe, "--log_dir=logs",
               says=["= %d ranks on cpu, over gloo" % (pipe * data), "step 2/2"])
    said = [strata.read("logs/rank_%d.log" % rank) for rank in range(pipe * data)]
    require(all("a forward is made" in text for text in said), "a forward of each rank", said)
    require(not any("a program is made" in text for text in said), "no program made by a rank", said)


def many_ranks(strata):
    grid_of_ranks(strata, pipe=4, data=8)


def hundreds_of_ranks(strata):
    grid_of_ranks(strata, pipe=16, data=16)
    grid_of_ranks(strata, pipe=256, data=1)
    grid_of_ranks(strata, pipe=1, data=256)


def doctor(strata):
    shown = strata.run("doctor")
    require("2.11" in shown and "loo" in shown.lower(), "LibTorch and Gloo", shown)


def doctor_links(strata):
    """Between three ranks, each two; plans and simulated clusters take the file."""
    shown = strata.run("doctor", "--links", "--ranks=3", "--output=links.json")
    require(len(re.findall(r"\(rank \d\) .*\(rank \d\) ", shown)) == 3, "three pairs", shown)
    links = strata.json("links.json")
    require(len(links["pairs"]) == 3, "their links", links)
    for pair in links["pairs"]:
        require(1e-7 < pair["latency"] < 1 and 1e5 < pair["bandwidth"] < 1e12, "a link", pair)
    strata.run("train", "digits.lua", "--pipe=3", "--steps=2", "--links=links.json", says="step 2/2")
    strata.run("plan", "digits.lua", "--simulate", "--cluster=cpu", "--pipe=3", "--links=links.json",
               says=["as measured", "step "])
    for pair in links["pairs"]:
        pair["bandwidth"] /= 1e4
    strata.write("slow.json", json.dumps(links))

    def step(name):
        flags = ["--simulate", "--cluster=cpu", "--pipe=3", "--partition=parameters", "--links=" + name]
        return strata.plan("digits.lua", *flags)["usual"]["step"]

    require(step("slow.json") > 2 * step("links.json"), "a slow link's step", (step("slow.json"), step("links.json")))


if __name__ == "__main__":
    program.main(globals())
