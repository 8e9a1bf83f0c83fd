#!/usr/bin/env python3
"""Half precision, as its users see it.

usage: precision.py STRATA MODELS TEST...

bits: in bf16 and fp16 every plan has the bits of one stage. accuracy: the digits are learnt in bf16 as
well as in float32. messages: they are half as long. scale: float16's scale of the loss goes back where gradients
overflow, is shown, saved and gone on from. deepspeed: DeepSpeed's keys mean the same.
"""

import json
import re

import program
from program import require

SHORT = ("--steps=6", "--threads=1", "--epochs=none")


def bits(strata):
    plans = [("--pipe=3", "--transport=gloo", "--schedule=zb_h1"),
             ("--pipe=2", "--schedule=1f1b", "--recompute=every:2"),
             ("--pipe=2", "--data=2", "--zero=1"), ("--pipe=2", "--stages_per_rank=2", "--schedule=zbv")]
    for precision in ("bf16", "fp16"):
        for plan in plans:
            shown = strata.run("verify", "digits.lua", *plan, "--precision=" + precision, "--threads=1")
            require("equal bit for bit" in shown, "the bits of one stage in " + precision, shown)


def accuracy(strata):
    found = {}
    for precision in ("float32", "bf16"):  # float16 has no fast kernels on a CPU
        shown = strata.run("train", "digits.lua", "--precision=" + precision, "--threads=1", "--pipe=1",
                           "--transport=threads")
        found[precision] = float(re.search(r"accuracy ([\d.]+)", shown).group(1))
    require(all(abs(other - found["float32"]) <= 0.015 for other in found.values()),
            "accuracies within 1.5 % (5 of 360 digits)", found)


def messages(strata):
    """Bytes of activations and gradients between two stages, of one step."""
    sent = {}
    for precision in ("float32", "bf16"):
        shown = strata.run("train", "digits.lua", *SHORT, "--comm_log", "--precision=" + precision)
        line = next(line for line in shown.splitlines() if re.search(r"\bsend\b", line))
        size, unit = re.search(r"([\d.]+) (B|KiB|MiB)", line).groups()
        sent[precision] = float(size) * {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20}[unit]
    require(0.49 < sent["bf16"] / sent["float32"] < 0.51, "half of the bytes", sent)


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
