#!/usr/bin/env python3
"""What people come with: tasks on data of their own, each run as its user runs it, beside the same in PyTorch.

usage: main.py STRATA MODELS NAME...

NAME/task.lua trains on what make.py writes, over one stage and over more with the same bits, up to the figure below.
NAME/in_pytorch.py is the script that one would write there; it is read, not run, as it takes torchvision, pandas and
others. The task has no more lines.
"""

import pathlib
import shutil
import sys

import make
import program
from program import require

HERE = pathlib.Path(__file__).resolve().parent
STAGES = (1, 2)
LEAST_ACCURACY = {"digits": 0.95, "finetune": 0.9, "photos": 0.8, "reviews": 0.95, "tagger": 0.95}
MOST_LOSS = {"cells": 0.6, "houses": 0.05, "llama": 0.1, "pairs": 0.2, "series": 0.02, "tokens": 0.8, "vae": 150}


def pretrained(folder):
    """What somebody else has trained, as torch.save() writes it."""
    from pytorch import torch
    torch.manual_seed(7)
    layers = {"conv1": torch.nn.Conv2d(3, 16, 3), "conv2": torch.nn.Conv2d(16, 32, 3), "head": torch.nn.Linear(128, 1000)}
    torch.save({"%s.%s" % (name, part): value for name, layer in layers.items()
                for part, value in layer.state_dict().items()}, folder / "pretrained.pth")


def prepare(name, folder):
    make.write(name, folder)
    shutil.copy(HERE / name / "task.lua", folder)
    if name == "finetune":
        pretrained(folder)
    if name == "llama":
        shutil.copy(HERE.parents[1] / "engine/data/testdata/gpt2.tokenizer.json", folder / "tokenizer.json")


def run(strata, name):
    prepare(name, pathlib.Path(strata.folder))
    task, twin = strata.path("task.lua"), HERE / name / "in_pytorch.py"
    compile(twin.read_text(), twin, "exec")
    logs = []
    for stages in STAGES:
        log = strata.path("%d.jsonl" % stages)
        strata.run("train", task, "--pipe=%d" % stages, "--transport=threads", "--threads=1", "--log=" + log)
        logs.append([{key: record[key] for key in ("loss", "test_loss", "accuracy") if key in record}
                     for record in program.records(log)])
    require(logs[0] and logs[1] == logs[0], "the same bits for %s stages" % (STAGES,), logs)
    last = [record for record in logs[0] if "test_loss" in record or "loss" in record][-1]
    accuracy, loss = last.get("accuracy"), last.get("test_loss", last.get("loss"))
    if name in LEAST_ACCURACY:
        require(accuracy >= LEAST_ACCURACY[name], "an accuracy of %s" % LEAST_ACCURACY[name], logs[0])
    else:
        require(loss <= MOST_LOSS[name], "a loss of at most %s" % MOST_LOSS[name], logs[0])
    ours = program.code_lines((HERE / name / "task.lua").read_text(), "--")
    theirs = program.code_lines(twin.read_text(), "#")
    print("%s: %d lines of Lua, %d of Python; loss %.4f, accuracy %s" % (name, ours, theirs, loss, accuracy))
    require(ours <= theirs, "no more lines than PyTorch takes", (ours, theirs))


if __name__ == "__main__":
    for task_name in sys.argv[3:]:
        run(program.Program(sys.argv[1], sys.argv[2]), task_name)
