#!/usr/bin/env python3
"""The models of models/ beside the same in PyTorch: the losses of five steps, and the lines that each takes.

usage: main.py STRATA MODELS NAME...

NAME.py is a script as its users write it, of which this takes
  model      a module; its state_dict has the names that Strata has, or NAMES changes them
  loss       of output and target
  optimizer  of model
  batch      (i) -> input, target: micro-batch i, as the script's data function draws it
and, where they are there,
  DATA           the body of that function in Lua, where the script reads a dataset
  OPTIONS        the script's, and keys of the job
  CLIP           as the key
  MICRO_BATCHES  of a step, else 2
"""

import contextlib
import importlib
import json
import pathlib
import re
import sys

import program
import values
from program import code_lines, require
from pytorch import seed_forward, torch

HERE = pathlib.Path(__file__).resolve().parent
SEED = 1234
STEPS = 5
LOOP = """
for epoch in range(EPOCHS):
    model.train()
    for x, y in train:
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        correct = sum((model(x).argmax(1) == y).sum().item() for x, y in test)
    print(epoch, correct / samples)
"""  # what every script has in PyTorch besides
STRAIGHT = 1e-5  # of a loss, relative: sums in another order
UPDATED = 5e-5  # behind updates: Adam turns the sign of a gradient that is nearly 0 into a whole step

RUN = """
local strata = require "strata"
local F = strata.F
local job = strata.load(%(path)s, %(options)s)
for _, step in ipairs(job:train { %(data)sweights = "start.safetensors", steps = %(steps)d, pipe = tonumber(arg[1]),
                                  precision = arg[2], transport = "threads", device = "cpu", threads = 1 }) do
  print(("loss %%.17g"):format(step.loss))
end
"""


def write_safetensors(path, tensors):
    """What the format's specification says, for float32 and int64."""
    names = {torch.float32: "F32", torch.int64: "I64"}
    header, data = {}, b""
    for name, tensor in tensors.items():
        part = bytes(tensor.detach().contiguous().reshape(-1).view(torch.uint8).tolist())
        header[name] = {"dtype": names[tensor.dtype], "shape": list(tensor.shape),
                        "data_offsets": [len(data), len(data) + len(part)]}
        data += part
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text + data)


def state_of(twin):
    """The model's tensors by Strata's names."""
    state = twin.model.state_dict()
    for pattern, name in getattr(twin, "NAMES", {}).items():
        state = {re.sub(pattern, name, old): tensor for old, tensor in state.items()}
    return state


def losses_of_twin(twin, steps=STEPS, forward=contextlib.nullcontext):
    count = getattr(twin, "MICRO_BATCHES", 2)
    now = 0
    for index, layer in enumerate(twin.model):  # what is random draws as Strata's layer of that place
        layer.register_forward_pre_hook(lambda *_, index=index: seed_forward(SEED, now, index))
    optimizer = twin.optimizer(twin.model)
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        total = 0.0
        for i in range(step * count, (step + 1) * count):
            now = i
            seed_forward(SEED, i, -1)
            given, target = twin.batch(i)
            with forward():
                loss = twin.loss(twin.model(given), target) / count
            loss.backward()
            total += loss.item()
        if hasattr(twin, "CLIP"):
            torch.nn.utils.clip_grad_norm_(twin.model.parameters(), twin.CLIP)
        optimizer.step()
        losses.append(total)
    return losses


def losses_of_strata(strata, name, twin, pipe, steps=STEPS, precision="float32"):
    options = {"batch.micro_batches": getattr(twin, "MICRO_BATCHES", 2), **getattr(twin, "OPTIONS", {})}
    text = ", ".join("[%s] = %s" % (json.dumps(key), values.lua(value)) for key, value in options.items())
    path = strata.write("run.lua", RUN % {
        "path": json.dumps(str(pathlib.Path(strata.models, name + ".lua"))), "options": "{ %s }" % text,
        "data": "data = function(i) %s end, " % twin.DATA if hasattr(twin, "DATA") else "", "steps": steps})
    shown = strata.run("run", path, str(pipe), precision)
    return [float(loss) for loss in re.findall(r"^loss (\S+)$", shown, re.MULTILINE)]


def compare(strata, name):
    torch.manual_seed(SEED)
    twin = importlib.import_module(name)
    write_safetensors(strata.path("start.safetensors"), state_of(twin))
    expected = losses_of_twin(twin)
    runs = [losses_of_strata(strata, name, twin, pipe) for pipe in (1, 2, 3)]
    require(len(runs[0]) == STEPS and runs[1:] == runs[:1] * 2, "the same losses for pipe 1, 2 and 3", runs)
    bounds = [STRAIGHT] + [UPDATED] * (STEPS - 1)
    require(all(abs(a - b) <= most * max(1, abs(b)) for a, b, most in zip(runs[0], expected, bounds)),
            "PyTorch's losses %s" % expected, runs[0])
    ours = code_lines(pathlib.Path(strata.models, name + ".lua").read_text(), "--")
    theirs = code_lines((HERE / (name + ".py")).read_text() + LOOP, ("#", "DATA", "OPTIONS", "NAMES"))
    print("%s: %d lines of Lua, %d of Python; loss %.6f -> %.6f" % (name, ours, theirs, runs[0][0], runs[0][-1]))
    require(ours <= theirs, "no more lines than the twin in PyTorch has", (ours, theirs))


if __name__ == "__main__":
    for model in sys.argv[3:]:
        compare(program.Program(sys.argv[1], sys.argv[2]), model)
