#!/usr/bin/env python3
"""Trainings that are saved, killed, damaged and gone on with, as their users would.

usage: saves.py STRATA MODELS TEST...

$SAVE_KILLS and $SAVE_FLIPS say how often; the gate's numbers are small, `--test_env` gives more.
"""

import os
import random
import re
import resource
import signal
import time

import program
from program import read_tensors, require, steps

KILLS = int(os.environ.get("SAVE_KILLS", "20"))
FLIPS = int(os.environ.get("SAVE_FLIPS", "100"))

JOB = """
local strata = require "strata"
local nn = strata.nn
return strata.job {
  name = "saved",
  layers = { nn.BatchNorm2d{1}, nn.Flatten{}, nn.Linear{64, %(width)d}, nn.ReLU{}, nn.Dropout{0.2},
             nn.Linear{%(width)d, %(width)d}, nn.ReLU{}, nn.Linear{%(width)d, 10} },
  loss = nn.CrossEntropyLoss{},
  batch = { micro_batches = 2, micro_batch_size = 8 },
  parallel = { pipe = 2 },
  optimizer = { "adamw", lr = 1e-3 },
  lr_schedule = { "cosine", steps = 100, warmup = 3 },
  data = { train = strata.data.digits{} },
  steps = 12, device = "cpu", threads = 1,
}
"""

# Ranks of the model axis share all of it, the first and the last tensor too, which are one.
SHARED_JOB = """
local strata = require "strata"
local nn = strata.nn
return strata.job {
  name = "shared",
  layers = {
    strata.tied{"words", nn.VocabParallelEmbedding{24, 16}},
    strata.times(2, function()
      return nn.TransformerEncoderLayer{16, 4, dim_feedforward=32, batch_first=true, causal=true}
    end),
    nn.LayerNorm{16, split="sequence"},
    nn.ColumnParallelLinear{16, 32}, nn.GELU{}, nn.RowParallelLinear{32, 16},
    strata.tied{"words", nn.ColumnParallelLinear{16, 24, bias=false}},
  },
  loss = nn.ParallelCrossEntropyLoss{},
  optimizer = { "sgd", lr = 0.1, momentum = 0.9 }, clip = 0.5, tie_check = 1,
  data = { train = strata.data.tokens{24, length=8, samples=64} },
  steps = 4, device = "cpu", threads = 1,
}
"""


def write_job(strata, width=32):
    strata.write("job.lua", JOB % {"width": width})


def train(strata, *flags, **options):
    return strata.run("train", "job.lua", *flags, **options)


def losses(strata, *flags):
    """Loss and gradient norm of each step, exactly."""
    log = strata.path("log.jsonl")
    if os.path.exists(log):
        os.remove(log)
    train(strata, "--log=log.jsonl", *flags)
    return {step["step"]: (step["loss"], step["grad_norm"]) for step in steps(log)}


def saves(folder):
    return sorted(name for name in os.listdir(folder) if name.startswith("step-"))


def resume(strata):
    """The steps behind a save are those of the uninterrupted run, on any pipe degree, both transports."""
    whole = losses(strata, "--save.dir=all", "--save.every=6", "--save.keep=0")
    require(saves(strata.path("all")) == ["step-00000006", "step-00000012"], "two saves", saves(strata.path("all")))
    for pipe, transport in [(2, "gloo"), (1, "threads"), (3, "gloo"), (4, "threads")]:
        rest = losses(strata, "--resume=all/step-00000006", "--pipe=%d" % pipe, "--transport=" + transport)
        require(rest == {step: whole[step] for step in range(6, 12)},
                "the same bits with pipe %d over %s" % (pipe, transport), (whole, rest))
    shown = train(strata, "--save.dir=all", "--resume")
    require("goes on after step 12 of all/step-00000012" in shown, "nothing left", shown)
    shown = train(strata, "--save.dir=all", code=2)
    require("there are saves in all already" in shown, "a refusal", shown)


def grids(strata):
    """Saved with three axes by eight processes; any grid goes on as that one does."""
    strata.write("job.lua", SHARED_JOB)

    def on_grid(pipe, data, model, transport, *flags):
        return losses(strata, "--pipe=%d" % pipe, "--data=%d" % data, "--model=%d" % model,
                      "--micro_batches=%d" % (4 // data), "--micro_batch_size=4",
                      "--transport=" + transport, *flags)

    whole = on_grid(2, 2, 2, "gloo", "--zero=1", "--save.dir=all", "--save.every=2", "--save.keep=0")
    for pipe, data, model, transport, zero in [
            (2, 2, 2, "gloo", 1), (2, 2, 2, "threads", 0), (1, 1, 1, "threads", 0),
            (4, 1, 1, "gloo", 0), (1, 4, 1, "threads", 2), (1, 1, 4, "gloo", 0)]:
        rest = on_grid(pipe, data, model, transport, "--zero=%d" % zero, "--resume=all/step-00000002")
        what = "grid (%d, %d, %d) over %s" % (pipe, data, model, transport)
        require(sorted(rest) == [2, 3], "two steps of the " + what, rest)
        error = max(abs(a - b) for step in rest for a, b in zip(rest[step], whole[step]))
        limit = 0 if (data, model) == (2, 2) else 1e-6
        require(error <= limit, "at most %g of difference for the %s" % (limit, what), error)
    strata.run("inspect", "all/step-00000004",
               says=[re.compile(r"0\.weight +parameter +float32 +\(24, 16\) +1,536 +2 +ok"), "4.weight"],
               lacks="7.weight")
    strata.run("inspect", "all/step-00000004", "--merge=all.safetensors")
    merged = read_tensors(strata.path("all.safetensors"))
    require(merged["1.self_attn.in_proj_weight"][:2] == ("F32", [48, 16]), "whole", sorted(merged))
    require(not [name for name in merged if "[" in name], "no slices", sorted(merged))
    with_python(strata.path("all.safetensors"), merged)


def unfreezing(strata):
    """Layers that learn one after the other: the same bits on one stage and on several, also in a second step of it."""
    write_job(strata)
    train(strata, "--freeze=2,5", "--steps=4", "--save.dir=frozen", "--pipe=1")
    found = []
    for i, plan in enumerate((("--pipe=1",), ("--pipe=2",), ("--pipe=4", "--transport=threads"))):
        folder = "runs%d" % i
        shown = train(strata, "--freeze=2", "--resume=frozen", "--save.dir=" + folder, "--steps=6", *plan)
        require("these parameters were frozen in the save and learn from now on; their moments begin at zero and "
                "their steps count from 1: 5.weight, 5.bias" in shown, "what begins", shown)
        shown = train(strata, "--resume", "--save.dir=" + folder, "--steps=8", "--freeze=none", *plan)
        require("steps count from 1: 2.weight, 2.bias\n" in shown, "what begins now", shown)
        began = strata.json(folder + "/step-00000008/manifest.json")["manifest"]["training"]["began"]
        require(began == {"5.weight": 4, "5.bias": 4, "2.weight": 6, "2.bias": 6}, "steps of their own", began)
        found.append(losses(strata, "--resume=%s/step-00000008" % folder, "--steps=10", *plan))
    require(found[0] == found[1] == found[2] and len(found[0]) == 2, "the same bits", found)
    shown = train(strata, "--freeze=2,7", "--resume=runs0", "--steps=9")
    require("are frozen from now on; their moments are dropped: 2.weight, 2.bias, 7.weight, 7.bias" in shown,
            "what is dropped", shown)
    for flags, told in ((["--optimizer.amsgrad=true"], "the optimizer's options are others than in the save"),
                        (["--ema=0.9"], "ema is another than in the save"), (["--seed=5"], "go on with --seed=1234"),
                        (["--micro_batches=3"], "its position in the data would be another")):
        refused = train(strata, "--resume=frozen", "--freeze=2,5", *flags, code=2)
        require(told in refused and "rank" not in refused, "refused before ranks start", refused)


def inspect(strata):
    train(strata, "--save.dir=runs", "--steps=2")
    strata.run("inspect", "runs",
               says=[re.compile(r"2\.weight#exp_avg +moment +float32 +\(32, 64\) +8,192 +1 +ok"), "whole",
                     "step 2 of the job"])
    strata.run("inspect", "runs", "--merge=all.safetensors")
    strata.run("inspect", "runs/step-00000002", "--merge=weights.safetensors", "--only_weights")
    strata.run("inspect", "runs", "--merge=all.safetensors", code=1)  # it is there already
    every, weights = (read_tensors(strata.path(name + ".safetensors")) for name in ["all", "weights"])
    require(sorted(weights) == sorted(name for name in every if "#" not in name), "weights", every)
    require(weights["2.weight"][:2] == ("F32", [32, 64]), "a weight", sorted(weights))
    parts = {}
    for name in os.listdir(strata.path("runs/step-00000002")):
        if name.endswith(".safetensors"):
            parts.update(read_tensors(strata.path("runs/step-00000002/" + name)))
    require(parts == every, "what the ranks wrote", (sorted(parts), sorted(every)))
    with_python(strata.path("all.safetensors"), every)
    shown = train(strata, "--weights=weights.safetensors", "--steps=1")
    require("begins with the weights of weights.safetensors" in shown, "weights", shown)


def with_python(path, expected):
    """safetensors' own library opens the file unchanged."""
    if library := program.package("safetensors.numpy"):
        tensors = library.load_file(path)
        require({name: tensor.tobytes() for name, tensor in tensors.items()} ==
                {name: data for name, (_, _, data) in expected.items()}, "equal bytes", sorted(tensors))


def sigterm(strata):
    """SIGTERM saves the step that runs and ends with 143."""
    for transport in ["gloo", "threads"]:
        folder = "term_" + transport
        job = strata.start("train", "job.lua", "--steps=1000000", "--save.dir=" + folder,
                           "--transport=" + transport, "--print_every=1")
        shown = job.wait_for("^step +3/")
        job.process.send_signal(signal.SIGTERM)
        code, out, errors = job.end()
        shown += out + errors
        require(code == 143, "exit code 143", shown)
        require("ended by signal 15 (SIGTERM)" in shown, "the signal", shown)
        step = int(re.search(r"saved step (\d+) to", shown).group(1))
        require(step >= 3, "a save of the step that ran", shown)
        shown = train(strata, "--save.dir=" + folder, "--resume", "--steps=%d" % (step + 1))
        require("goes on after step %d" % step in shown, "the step", shown)


LONG_EVALUATION = """
local strata = require "strata"
local nn, F = strata.nn, strata.F
local function sample(i)
  if i == 100 then print("evaluates") end  -- planning looks at the first ones
  return F.ones{8}, i % 2
end
return strata.job {
  layers = { nn.Linear{8, 8}, nn.ReLU{}, nn.Linear{8, 2} },
  loss = nn.CrossEntropyLoss{}, optimizer = { "sgd", lr = 0.01 },
  batch = { micro_batches = 2, micro_batch_size = 4 }, parallel = { pipe = 2 },
  data = { train = strata.dataset{length=64, get=function(i) return F.ones{8}, i % 2 end},
           test = strata.dataset{length=1e7, get=sample} },
  eval = { every = 1 }, steps = 3, device = "cpu", threads = 1,
}
"""


def sigterm_in_evaluations(strata):
    """SIGTERM leaves an evaluation, saves the step before it and ends with 143; so do the last one and
    `strata eval`."""
    strata.write("long.lua", LONG_EVALUATION)
    for transport in ["gloo", "threads"]:
        for last in [3, 1]:
            folder = "left_%s_%d" % (transport, last)
            job = strata.start("train", "long.lua", "--steps=%d" % last, "--save.dir=" + folder,
                               "--transport=" + transport)
            shown = job.wait_for("evaluates")
            job.process.send_signal(signal.SIGTERM)
            code, out, errors = job.end()
            shown += out + errors
            require(code == 143, "exit code 143", shown)
            require("saved step 1 to" in shown and "step 2/" not in shown and "test loss" not in shown,
                    "the step before the evaluation, and nothing else", shown)
            job = strata.start("eval", "long.lua", "--weights=" + folder, "--transport=" + transport)
            shown = job.wait_for("evaluates")
            job.process.send_signal(signal.SIGTERM)
            code, out, errors = job.end()
            require(code == 143 and "test loss" not in shown + out, "no loss of a part", (code, shown, out, errors))


def kills(strata):
    """kill -9 at random moments around saves: always resumable from the last complete save."""
    chance = random.Random(4)
    flags = ["--save.dir=killed", "--save.every=1", "--resume", "--steps=1000000", "--print_every=1"]
    told = 0  # the last step that was said to be saved
    for kill in range(KILLS):
        transport = chance.choice(["gloo", "threads"])
        job = strata.start("train", "job.lua", "--transport=" + transport, *flags)
        shown = ""
        for _ in range(chance.randrange(2, 14)):  # so many lines: some before the first step
            shown += job.process.stdout.readline()
        victims = [job.process.pid] + [pid for pids in job.pids().values() for pid in pids]
        time.sleep(chance.random() * 0.02)  # the moment; what must hold does not depend on it
        os.kill(chance.choice(victims), signal.SIGKILL)
        code, out, errors = job.end()
        shown += out + errors
        require(code not in [0, 2], "a death", shown)
        began = re.search(r"goes on after step (\d+)", shown)
        require(told == 0 or not began or int(began.group(1)) >= told, "step %d or later" % told, shown)
        told = max([told] + [int(step) for step in re.findall(r"saved step (\d+) to", shown)])
        if os.path.exists(strata.path("killed/latest")):
            strata.run("inspect", "killed", lacks="DAMAGED")
    require(told > 0, "steps that lived on", told)
    at = int(saves(strata.path("killed"))[-1][5:13])  # behind it the number of another save of it
    rest = losses(strata, "--save.dir=killed", "--resume", "--steps=%d" % (at + 2))
    expected = losses(strata, "--steps=%d" % (at + 2))
    require(all(rest[step] == expected[step] for step in range(at, at + 2)),
            "the bits of the uninterrupted run", (rest, expected))
    require(not [name for name in os.listdir(strata.path("killed")) if name.startswith(".")],
            "nothing of the dead", os.listdir(strata.path("killed")))


def full_disk(strata):
    """A disk that takes no more: the training goes on, the last save stays, the end says so. One that
    takes no log ends the training with a save."""
    limit = 20000  # bytes of a file

    def limited():  # reads `limit` when it is called
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    write_job(strata, 256)
    shown = train(strata, "--save.dir=full", "--save.every=2", "--steps=6", code=1, preexec_fn=limited)
    require(shown.count("was not saved, the training goes on: rank") >= 2, "warnings", shown)
    require("File too large" in shown, "the system's reason", shown)
    require("the save of step 6 failed" in shown, "the end's failure", shown)
    require(saves(strata.path("full")) == [] and "latest" not in os.listdir(strata.path("full")),
            "nothing that looks like a save", os.listdir(strata.path("full")))
    shown = train(strata, "--save.dir=full", "--resume", "--steps=2")
    require("nothing is saved in full yet" in shown, "a beginning", shown)
    shown = train(strata, "--save.dir=full", "--resume", "--save.every=1", "--steps=4", code=1, preexec_fn=limited)
    shown = train(strata, "--save.dir=full", "--resume", "--steps=4")
    require("goes on after step 2 of full/step-00000002" in shown, "the last save", shown)
    train(strata, "--log=/dev/full", code=1, says="cannot write to the log /dev/full: No space left")
    write_job(strata, 4)
    limit = 60000  # more than a save has, and less than the log of some hundred steps
    train(strata, "--log=full.jsonl", "--save.dir=logged", "--steps=1000000", code=1, preexec_fn=limited,
          says=["cannot write to the log full.jsonl: File too large", "saved step "])


def best_saves(strata):
    """Where only the best was saved, --resume goes on from it, and what finds no other save names it."""
    strata.write("job.lua", (JOB % {"width": 32}).replace(
        "strata.data.digits{}", "strata.data.digits{}, test = strata.data.digits{split = 'test'}"))
    best = ["--save.dir=runs", "--eval.every=2", "--save.best=test.loss", "--print_every=1"]
    job = strata.start("train", "job.lua", "--steps=1000000", *best)
    job.wait_for("^saved step .* to runs/best/")
    job.process.send_signal(signal.SIGKILL)
    job.end()
    named = "nothing was saved in runs but its best save, which is in runs/best"
    for command in (["inspect", "runs"], ["eval", "job.lua", "--weights=runs"]):
        shown = strata.run(*command, code=1, says=named)
    at = int(strata.read("runs/best/latest")[5:13])
    shown = train(strata, *best, "--resume", "--steps=%d" % (at + 4))
    require("goes on after step %d of runs/best/step-" % at in shown, "the best save", shown)
    require("there is no other yet" in shown, "that it is the best", shown)


def flips(strata):
    """Every flipped bit is found before use, by tensor or file, and the save before is offered."""
    train(strata, "--save.dir=runs", "--steps=2", "--save.every=1")
    newest = strata.path("runs/step-00000002")
    files = [os.path.join(newest, name) for name in sorted(os.listdir(newest))]
    files.append(strata.path("runs/latest"))
    sizes = [os.path.getsize(path) for path in files]
    chance = random.Random(4)
    for flip in range(FLIPS):
        # Half of them anywhere by size, half in any file: headers are small.
        path = chance.choices(files, sizes if flip % 2 else None)[0]
        bit = chance.randrange(8 * os.path.getsize(path))
        change(path, bit)
        if flip % 10 == 0:
            shown = train(strata, "--save.dir=runs", "--resume", "--steps=3", code=1)
            good = 2 if path.endswith("latest") else 1
            require("--resume=runs/step-0000000%d" % good in shown, "the last good one", shown)
        else:
            strata.run("inspect", "runs", code=1)
        change(path, bit)
    strata.run("inspect", "runs")


def change(path, bit):
    with open(path, "r+b") as file:
        file.seek(bit // 8)
        (byte,) = file.read(1)
        file.seek(bit // 8)
        file.write(bytes([byte ^ (1 << (bit % 8))]))


if __name__ == "__main__":
    program.main(globals(), prepare=write_job)
