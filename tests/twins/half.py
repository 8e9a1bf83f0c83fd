#!/usr/bin/env python3
"""Half precision beside PyTorch's: torch.autocast("cpu", torch.bfloat16) with float32 parameters, and GradScaler.

usage: half.py STRATA MODELS NAME...

losses: of 20 steps of a model beside its twin. scaler: the scale of the loss, on the overflows of a training.

How far losses may differ: bf16 keeps 8 bits of a value, so that one rounding is an error of up to U = 2^-9 of it. Both
sides round what layers give and their gradients; PyTorch adds residuals and embeddings in float32, where Strata's
activations are bf16, and products add up in other orders. A loss is a mean over the places of a batch, in which the
errors of single values mostly cancel, so that it stays within BOUND, one rounding of its own, though 20 updates with
such gradients lie before it.
"""

import importlib
import math
import sys

import main as twins
import program
from program import require
from pytorch import torch

U = 2.0**-9
BOUND = U
STEPS = 20


def losses(strata, name):
    torch.manual_seed(twins.SEED)
    twin = importlib.import_module(name)
    start = {key: value.clone() for key, value in twin.model.state_dict().items()}
    twins.write_safetensors(strata.path("start.safetensors"), twins.state_of(twin))
    theirs, ours = {}, {}
    for precision in ("float32", "bf16"):
        twin.model.load_state_dict(start)
        theirs[precision] = twins.losses_of_twin(
            twin, STEPS, lambda: torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"))
        runs = [twins.losses_of_strata(strata, name, twin, pipe, STEPS, precision) for pipe in (1, 2)]
        require(len(runs[0]) == STEPS and runs[0] == runs[1], "the same losses for pipe 1 and 2", runs)
        ours[precision] = runs[0]

    def furthest(a, b):
        require(all(map(math.isfinite, a + b)), "finite losses", (a, b))
        return max(abs(x - y) / max(1, abs(y)) for x, y in zip(a, b))

    exact = theirs["float32"]
    print("%s: the largest difference of %d losses, relative: ours and autocast's %.1e, ours and float32's %.1e, "
          "autocast's and float32's %.1e; the bound %.1e" % (
              name, STEPS, furthest(ours["bf16"], theirs["bf16"]), furthest(ours["bf16"], exact),
              furthest(theirs["bf16"], exact), BOUND))
    require(furthest(ours["bf16"], theirs["bf16"]) <= BOUND, "autocast's losses %s" % theirs["bf16"], ours["bf16"])
    require(ours["bf16"] != ours["float32"], "losses of bf16", ours)


def scaler(strata):
    """The gradients of float16 overflow at high scales. GradScaler gets the same overflows."""
    log = strata.path("log.jsonl")
    strata.run("train", "digits.lua", "--precision=fp16", "--precision.initial_scale=1048576",
               "--precision.growth_interval=2", "--steps=24", "--epochs=none", "--threads=1", "--log=" + log)
    records = program.steps(log)
    skipped = [record.get("skipped", 0) for record in records]
    overflows = [after > before for before, after in zip([0, *skipped], skipped)]
    require(3 <= sum(overflows) <= 20, "overflows between good steps", skipped)
    parameter = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([parameter], lr=0.0)
    theirs = torch.amp.GradScaler("cpu", init_scale=2.0**20, growth_interval=2)
    scales = []
    for overflow in overflows:
        optimizer.zero_grad()
        theirs.scale((parameter * (float("inf") if overflow else 1.0)).sum()).backward()
        theirs.step(optimizer)
        theirs.update()
        scales.append(theirs.get_scale())
    ours = [record["loss_scale"] for record in records]
    print("scaler: overflows %s, scales %s" % ("".join(".x"[overflow] for overflow in overflows), ours))
    require(ours == scales, "GradScaler's scales %s" % scales, ours)


if __name__ == "__main__":
    for what in sys.argv[3:]:
        strata = program.Program(sys.argv[1], sys.argv[2])
        scaler(strata) if what == "scaler" else losses(strata, what)
