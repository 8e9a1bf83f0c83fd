#!/usr/bin/python3 -B
"""tests/house/how_to_add.py [--check]: adds to a copy of this checkout one of each thing that CONTRIBUTING.md says
how to add, exactly as its blocks of code say it, builds the copy and uses all of them from a script.

A block begins with ```add PATH above TEXT: its lines go above the line of the file that has TEXT. Or
with ```add PATH: they are a new file. --check only says whether each TEXT is still there, once."""

import json
import os
import re
import subprocess
import sys

# As Bazel runs --check, the checkout is what the target names; it builds from the real one.
FILE = os.path.abspath(__file__) if "--check" in sys.argv else os.path.realpath(__file__)
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(FILE)))
sys.path.insert(0, os.path.dirname(FILE))
from checkout import copy_checkout, folder_of_copy

BLOCK = re.compile(r"^```add (\S+)(?: above ([^\n]+))?\n(.*?)^```$", re.DOTALL | re.MULTILINE)

# Uses what the page adds.
SCRIPT = """
local strata = require "strata"
local nn = strata.nn
return strata.job {
  layers = { nn.Flatten{}, nn.Linear{64, 32}, nn.Squareplus{b = 1}, nn.Linear{32, 10}, nn.Squareplus{} },
  loss = nn.CrossEntropyLoss{},
  partition = "tail", schedule = "one_by_one", remark = "added",
  optimizer = { "signsgd", lr = 1e-2 },
  batch = { micro_batches = 4, micro_batch_size = 32 }, parallel = { pipe = 2 },
  data = { train = strata.data.digits{} },
  steps = 30, device = "cpu", threads = 1,
}
"""


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


def changed():
    """The texts of all files that the page changes or adds, by path."""
    blocks = BLOCK.findall(read("CONTRIBUTING.md"))
    if len(blocks) < 10:
        sys.exit("error: CONTRIBUTING.md has %d blocks of code to add" % len(blocks))
    texts = {}
    for path, anchor, code in blocks:
        if not anchor:
            texts[path] = code
            continue
        lines = texts.get(path, read(path)).splitlines(keepends=True)
        places = [i for i, line in enumerate(lines) if anchor in line]
        if len(places) != 1:
            sys.exit("error: CONTRIBUTING.md: %s has %d lines with %s, expected one" % (path, len(places), anchor))
        lines.insert(places[0], code)
        texts[path] = "".join(lines)
    return texts


def run(copy, *arguments):
    """What a command prints, run in the copy."""
    done = subprocess.run(arguments, cwd=copy, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit("error: %s ended with %d" % (" ".join(arguments), done.returncode))
    return done.stdout


def require(condition, what):
    if not condition:
        sys.exit("error: expected " + what)


def main():
    texts = changed()
    if "--check" in sys.argv:
        print("%d files take what CONTRIBUTING.md adds" % len(texts))
        return
    copy = os.path.join(folder_of_copy(ROOT, "how_to_add"), "strata")
    copy_checkout(ROOT, {**texts, "added.lua": SCRIPT}, copy)
    run(copy, "tools/bazel", "build", "//launcher:strata", "//:engine")
    strata = "bazel-bin/launcher/strata"
    plan = json.loads(run(copy, strata, "plan", "added.lua", "--json"))
    require(plan["bounds"] == [0, 1, 5], "the partition's bounds {0, 1, 5}, got %s" % plan["bounds"])
    run(copy, strata, "train", "added.lua", "--log=added.jsonl", "--remark=again")
    with open(os.path.join(copy, "added.jsonl"), encoding="utf-8") as log:
        losses = [record["loss"] for record in map(json.loads, log) if "loss" in record]
    require(losses[-1] < 0.8 * losses[0], "a loss that falls, got %s" % losses)
    require("words about the training" in run(copy, strata, "help", "train"), "the key in the help")
    run(copy, strata, "verify", "added.lua", "--steps=3")
    print("all that CONTRIBUTING.md adds works: the loss fell from %.3f to %.3f" % (losses[0], losses[-1]))


main()
