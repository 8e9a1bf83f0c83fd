"""Writes lr_schedules.json: factors of learning-rate schedules as PyTorch 2.11 computes them.

    python make_lr_schedules.py > lr_schedules.json

Each case is [type, options, steps of the training, factors of the first steps].
"""

import json
import random
import warnings

import torch
from torch.optim import lr_scheduler as schedulers

warnings.simplefilter("ignore")
random.seed(7)


def factors(make, count):
    parameter = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    scheduler = make(optimizer)
    result = []
    for _ in range(count):
        result.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return result


def rise(optimizer, warmup):
    return schedulers.LinearLR(optimizer, start_factor=1 / (warmup + 1), total_iters=warmup)


def after(warmup, count, make):
    """The factors of a rise of `warmup` steps, then those of make()."""
    first = factors(lambda o: rise(o, warmup), warmup) if warmup else []
    return first + factors(make, count - warmup)


cases = []
for _ in range(12):
    warmup = random.choice([0, 0, 1, 3, 7])
    length = random.randint(1, 20)
    final = random.choice([0.0, 0.1, 0.5])
    total = warmup + length
    count = total + random.choice([0, 5])
    given = {"steps": length} if count > total else {}
    options = {"final": final, "warmup": warmup, **given}
    # Beyond its length LinearLR stays, and CosineAnnealingLR would rise again: cut there.
    linear = after(warmup, count, lambda o: schedulers.LinearLR(
        o, start_factor=1.0, end_factor=max(final, 1e-12), total_iters=length))
    cases.append(["linear", options, count, linear])
    cosine = after(warmup, total, lambda o: schedulers.CosineAnnealingLR(
        o, T_max=length, eta_min=final))
    cases.append(["cosine", options, count, cosine])
    every, gamma = random.randint(1, 6), random.choice([0.1, 0.5, 0.9])
    cases.append(["step", {"every": every, "gamma": gamma, "warmup": warmup}, count,
                  after(warmup, count, lambda o: schedulers.StepLR(o, every, gamma))])
    steps = random.randint(1, 10)
    cases.append(["warmup", {"steps": steps}, 15, factors(lambda o: rise(o, steps), 15)])

print("[")
print(",\n".join(json.dumps(case) for case in cases))
print("]")
