#!/usr/bin/env python3
"""Half precision, as its users see it.

usage: precision.py STRATA MODELS TEST...

bits: in bf16 and fp16 every plan has the bits of one stage. accuracy: the digits are learnt in bf16 as
well as in float32; models: so are a ResNet and a GPT-2. messages: they are half as long. memory: as predicted.
own_types: layers with a type of their own. saves: a training goes on in another precision; parameters without
masters. scale: float16's scale of the loss goes back where gradients overflow, is shown, saved and gone on from.
deepspeed: DeepSpeed's keys mean the same.
"""

import json
import os
import re

import program
from program import require

SHORT = ("--steps=6", "--threads=1", "--epochs=none")


PLANS = [
    ("--pipe=1", "--recompute=every:3"),
    ("--pipe=2", "--transport=threads", "--schedule=gpipe", "--recompute=true"),
    ("--pipe=2", "--schedule=1f1b", "--recompute=every:2"),
    ("--pipe=2", "--stages_per_rank=2", "--schedule=zbv"),
    ("--pipe=2", "--stages_per_rank=2", "--schedule=interleaved_1f1b", "--transport=threads"),
    ("--pipe=2", "--data=2", "--zero=1"),
    ("--pipe=1", "--data=2", "--zero=2"),
    ("--pipe=3", "--transport=gloo", "--schedule=zb_h1"),
    ("--pipe=4", "--transport=threads", "--schedule=zb_h2", "--recompute=true"),
    ("--pipe=4", "--transport=gloo", "--schedule=1f1b"),
]


def bits(strata):
    for precision in ("bf16", "fp16"):
        for plan in PLANS:
            strata.verifies("digits.lua", *plan, "--threads=1", "--precision=" + precision)
        # Attention, norms, a tied table, gradients that are clipped.
        small = ("--vocab=61", "--seq=16", "--dim=32", "--heads=4", "--depth=2", "--batch.micro_batch_size=2")
        for plan in PLANS[3], PLANS[6], PLANS[7]:
            strata.verifies("gpt2.lua", *small, *plan, "--threads=1", "--precision=" + precision)


def accuracy(strata):
    """Of the 359 digits that are held out, before the training and behind it: the mean over seeds, 2,154 answers."""
    start = ("--epochs=none", "--steps=1", "--optimizer.lr=0")
    for when, flags, seeds in (("initial", start, 3), ("final", (), 6)):
        found = {"float32": [], "bf16": []}  # float16 has no fast kernels on a CPU
        for precision, numbers in found.items():
            for seed in range(1, seeds + 1):
                shown = strata.run("train", "digits.lua", *flags, "--precision=" + precision, "--threads=1", "--pipe=1",
                                   "--transport=threads", "--seed=%d" % seed)
                numbers.append(float(re.search(r"accuracy ([\d.]+)", shown).group(1)))
        print(when, found)
        require(abs(sum(found["bf16"]) - sum(found["float32"])) / seeds <= 0.003, "accuracies within 0.3 %", found)


MODELS = """
local strata = require "strata"
local function images(split)
  return strata.data.digits{split = split}:map(function(x, y) return x:expand{3, 8, 8}:contiguous(), y end):cache()
end
local runs = {
  resnet = {{depth = 10, width = 8, pixels = 8, classes = 10, stem = "cifar"}, {train = images("train"), test = images("test")},
            {"sgd", lr = 0.05, momentum = 0.9, weight_decay = 1e-4}, 400},
  gpt2 = {{vocab = 256, seq = 32, dim = 32, heads = 4, depth = 2, dropout = 0},
          {train = strata.data.text{length = 32}, test = strata.data.text{length = 32, split = "test"}},
          {"adamw", lr = 3e-3}, 300},
}
local options, data, optimizer, steps = unpack(runs[arg[2]])
local all = strata.load(arg[1] .. "/" .. arg[2] .. ".lua", options):train {
  data = data, optimizer = optimizer, steps = steps, lr_schedule = {"cosine"}, precision = arg[3], seed = tonumber(arg[4]),
  batch = {micro_batches = 2, micro_batch_size = 16}, transport = "threads", device = "cpu", threads = 1, pipe = 1,
}
print(("accuracy %.6f"):format(all[#all].test.accuracy))
"""


def models(strata):
    """A small ResNet on digits and a small GPT-2 on text, as accuracy() does; six minutes. A ResNet's two accuracies
    of one seed differ by 0.6 % (standard deviation), so that the mean of 36 is within 0.3 % but for three errors."""
    script = strata.write("models.lua", MODELS)
    for model, seeds in (("resnet", 36), ("gpt2", 8)):
        found = {precision: [float(re.search(r"accuracy ([\d.]+)", strata.run(
            "run", script, strata.models, model, precision, str(seed))).group(1)) for seed in range(1, seeds + 1)]
            for precision in ("float32", "bf16")}
        print(model, found)
        require(abs(sum(found["bf16"]) - sum(found["float32"])) / seeds <= 0.003, "accuracies within 0.3 %", found)


def messages(strata):
    """Bytes of activations and gradients between two stages."""
    sent = {}
    for precision in ("float32", "bf16", "fp16"):
        shown = strata.run("train", "digits.lua", *SHORT, "--partition=parameters", "--comm_log",
                           "--precision=" + precision)
        lines = re.findall(r"^send .*?([\d.]+) (B|KiB|MiB)\s+(\d+)", shown, re.MULTILINE)
        unit = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20}
        sent[precision] = sum(float(size) * unit[of] * int(calls) for size, of, calls in lines)
    print("bytes sent in six steps:", sent)
    require(sent["bf16"] == sent["fp16"] == sent["float32"] / 2, "half of the bytes", sent)


def memory(strata):
    """The engine's own count of the largest rank, and what was predicted of it. docs/benchmarks.md has more."""
    of_transformer = ("transformer.lua", "--seq=64", "--depth=4", "--pipe=2", "--stages_per_rank=1")
    # A small one, of layers in Lua: the scores are a third of its activations.
    of_gpt2 = ("gpt2.lua", "--vocab=8000", "--dim=256", "--seq=128", "--heads=4", "--depth=4", "--pipe=1",
               "--batch.micro_batches=2", "--batch.micro_batch_size=4")
    for model in (of_transformer, of_gpt2):
        for flags in ((), ("--recompute=every:1",)):
            activations = {}
            for precision in ("float32", "bf16"):
                given = (*model, *flags, "--precision=" + precision, "--device=cpu", "--threads=1")
                activations[precision] = predicted_activations(strata, given)
            print("activations %.2f of float32's" % (activations["bf16"] / activations["float32"]))
            if model == of_transformer and not flags:  # else the loss is most of what is left
                require(activations["bf16"] < 0.7 * activations["float32"],
                        "activations half as large, but for the loss and attention with dropout, which are float32",
                        activations)


def predicted_activations(strata, given):
    """Of all ranks, in bytes, where the peak of the largest one is as predicted."""
    ranks = strata.plan(*given)["memory"]
    expected = max(rank["total"] for rank in ranks)
    strata.run("train", *given, "--steps=3", "--log=log.jsonl")
    measured = program.steps(strata.path("log.jsonl"))[-1]["peak_memory"]
    error = expected / measured - 1
    print("%s: predicted %.1f MiB, measured %.1f MiB, %+.1f %%" % (
        " ".join(given), expected / 2**20, measured / 2**20, 100 * error))
    require(abs(error) <= 0.05, "a prediction within 5 %", given)
    return sum(rank["activations"] for rank in ranks)


OWN_TYPES = """
local strata = require "strata"
local nn = strata.nn
return strata.job {
  name = "own_types",
  layers = {
    nn.Conv2d{1, 8, kernel_size = 3, padding = 1}, nn.BatchNorm2d{8, dtype = "float64"}, nn.ReLU{},
    nn.Flatten{}, nn.Linear{512, 32, dtype = "float64", name = "exact"}, nn.Tanh{dtype = "float32"},
    nn.Residual{nn.Linear{32, 32, dtype = "float32"}, nn.GELU{}},
    function(x) print("type " .. x.dtype) return x end,
    nn.Linear{32, 10, dtype = "bfloat16", name = "rounded"},
  },
  loss = nn.CrossEntropyLoss{}, clip = 1.0,
  batch = { micro_batches = 4, micro_batch_size = 8 }, optimizer = { "adamw", lr = 1e-3 },
  data = { train = strata.data.digits{}, test = strata.data.digits{split = "test"} }, steps = 3, device = "cpu",
}
"""


def own_types(strata):
    job = strata.write("job.lua", OWN_TYPES)
    plans = [("--pipe=3", "--schedule=zb_h1"), ("--pipe=2", "--recompute=every:2", "--transport=threads"),
             ("--pipe=2", "--data=2", "--zero=2")]
    for precision, named in (("float32", "float32"), ("bf16", "bfloat16"), ("fp16", "float16")):
        for plan in plans:
            strata.verifies(job, *plan, "--precision=" + precision, "--threads=1")
        save = strata.path(precision)
        shown = strata.run("train", job, "--precision=" + precision, "--threads=1", "--save.dir=" + save)
        seen = set(re.findall(r"type (\w+)", shown))  # the plan's shapes are those of float32
        require(named in seen and seen <= {named, "float32"}, "what a layer of one's own sees", shown)
        saved = strata.run("inspect", save)
        for name, dtype in (("exact.weight", "float64"), ("exact.weight#exp_avg", "float64"), ("0.weight", "float32"),
                            ("1.running_var", "float64"), ("rounded.weight", "bfloat16")):
            require(re.search(re.escape(name) + r" +\w+ +%s " % dtype, saved), "%s in %s" % (name, dtype), saved)
    shown = strata.run("plan", job, "--pipe=2", "--precision=bf16", "--json")
    stages = json.loads(shown[shown.index("{"):])["stages"]
    require(all(spec["dtype"] == "bfloat16" for spec in stages[1]["input"]), "messages in the job's type", stages)


def saves(strata):
    """Masters are saved, so that another precision goes on from them; without masters there is bf16 alone, which
    float32 goes on from without a change."""
    save = ("--save.dir=" + strata.path("saves"), "--save.every=4")
    strata.run("train", "digits.lua", *SHORT[1:], *save, "--precision=bf16", "--steps=4")
    strata.run("inspect", strata.path("saves"), says="float32", lacks="bfloat16")
    last = {}
    for precision in ("bf16", "float32", "fp16"):
        log = strata.path(precision + ".jsonl")
        strata.run("train", "digits.lua", *SHORT[1:], "--resume=" + strata.path("saves/step-00000004"),
                   "--precision=" + precision, "--steps=6", "--log=" + log)
        records = program.steps(log)
        require([record["step"] for record in records] == [4, 5], "two more steps", records)
        last[precision] = records[0]["loss"]
    require(max(last.values()) - min(last.values()) <= 2**-6, "losses within bf16's rounding", last)
    strata.run("train", "digits.lua", *SHORT, "--precision=bf16", "--precision.params=bf16", "--optimizer.eps=1e-4",
               "--save.dir=" + strata.path("small"))
    strata.run("inspect", strata.path("small"), says="bfloat16", lacks="float32")
    half = ("--precision=bf16", "--precision.params=bf16", "--optimizer.eps=1e-4")
    whole = ("--precision=float32", "--optimizer.eps=1e-4")
    for source, flags, told in (("saves/step-00000004", half, "become bfloat16, from float32: the values are rounded"),
                                ("small", whole, "become float32, from bfloat16: no value changes"),
                                ("small", ("--precision=fp16", *whole[1:]), "no value changes")):
        found = []
        for plan in (("--pipe=1",), ("--pipe=3", "--schedule=gpipe")):
            log = strata.path("on.jsonl")
            strata.run("train", "digits.lua", *SHORT[1:], *plan, *flags, "--resume=" + strata.path(source), "--steps=8",
                       "--log=" + log, says=told)
            found.append([(step["loss"], step["grad_norm"]) for step in program.steps(log)])
            os.remove(log)
        require(found[0] == found[1] and found[0], "the same bits on both plans", found)


def scale(strata):
    first = ("--precision=fp16", "--precision.initial_scale=1048576", "--precision.growth_interval=3")
    saves = ("--save.dir=" + strata.path("saves"), "--save.every=6")
    strata.run("train", "digits.lua", *first, *saves, *SHORT, "--log=" + strata.path("whole.jsonl"), "--steps=12")
    whole = [step["loss_scale"] for step in program.steps(strata.path("whole.jsonl"))]
    require(whole[0] == 2**19, "a scale of 2^20 that goes back at once", whole)
    require(min(whole) >= 2**8 and any(b > a for a, b in zip(whole, whole[1:])), "a scale that grows again", whole)
    skipped = [step.get("skipped", 0) for step in program.steps(strata.path("whole.jsonl"))]
    require(skipped[0] == 1 and skipped[-1] < 12, "steps that were left out", skipped)
    saves = ("--save.dir=" + strata.path("other"), "--save.every=6")
    strata.run("train", "digits.lua", *first, *saves, *SHORT, "--steps=6")
    strata.run("train", "digits.lua", *first, *saves, *SHORT, "--resume", "--log=" + strata.path("rest.jsonl"),
               "--steps=12")
    rest = [step["loss_scale"] for step in program.steps(strata.path("rest.jsonl"))]
    require(rest == whole[6:], "the scales of the training that was not interrupted, %s" % whole[6:], rest)


def deepspeed(strata):
    config = strata.write("ds.json", json.dumps({"bf16": {"enabled": True}, "steps": 3}))
    losses = []
    for flags in (("--config=" + config,), ("--precision=bf16", "--steps=3")):
        log = strata.path("%d.jsonl" % len(losses))
        strata.run("train", "digits.lua", *flags, "--threads=1", "--log=" + log)
        losses.append([step["loss"] for step in program.steps(log)])
    require(losses[0] == losses[1] and len(losses[0]) == 3, "DeepSpeed's key as ours", losses)


if __name__ == "__main__":
    program.main(globals())
