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
    cosine = after(warmup, total, lambda o: schedulers.CosineAnnealingLR(o, T_max=length, eta_min=final))
    cases.append(["cosine", options, count, cosine])
    every, gamma = random.randint(1, 6), random.choice([0.1, 0.5, 0.9])
    cases.append(["step", {"every": every, "gamma": gamma, "warmup": warmup}, count,
                  after(warmup, count, lambda o: schedulers.StepLR(o, every, gamma))])
    steps = random.randint(1, 10)
    cases.append(["warmup", {"steps": steps}, 15, factors(lambda o: rise(o, steps), 15)])

for _ in range(6):
    warmup, count = random.choice([0, 0, 2]), random.randint(12, 25)
    power, gamma = random.choice([0.5, 1.0, 2.0]), random.choice([0.5, 0.9, 1.0])
    length = random.randint(1, count - warmup)
    cases.append(["polynomial", {"steps": length, "power": power, "warmup": warmup}, count,
                  after(warmup, count, lambda o: schedulers.PolynomialLR(o, length, power))])
    milestones = sorted(random.sample(range(1, count), 3))
    cases.append(["multi_step", {"milestones": milestones, "gamma": gamma, "warmup": warmup}, count,
                  after(warmup, count, lambda o: schedulers.MultiStepLR(o, milestones, gamma))])
    cases.append(["exponential", {"gamma": gamma, "warmup": warmup}, count,
                  after(warmup, count, lambda o: schedulers.ExponentialLR(o, gamma))])
    first, times, final = random.randint(1, 5), random.randint(1, 3), random.choice([0.0, 0.2])
    cases.append(["cosine_restarts", {"T_0": first, "T_mult": times, "final": final, "warmup": warmup}, count,
                  after(warmup, count, lambda o: schedulers.CosineAnnealingWarmRestarts(o, first, times, final))])
    options = {"pct_start": random.choice([0.2, 0.3, 0.5]), "anneal_strategy": random.choice(["cos", "linear"]),
               "div_factor": random.choice([10.0, 25.0]), "final_div_factor": random.choice([100.0, 1e4]),
               "three_phase": random.choice([True, False])}
    if options["three_phase"]:
        options["pct_start"] = min(options["pct_start"], 0.3)
    cases.append(["one_cycle", options, count, factors(
        lambda o: schedulers.OneCycleLR(o, 1.0, count, cycle_momentum=False, **options), count)])
    begin = random.randint(1, count - 1)
    cases.append(["sequence", {"schedules": [{"1": "warmup", "steps": 5}, {"1": "exponential", "gamma": gamma}],
                               "milestones": [begin]}, count, factors(
        lambda o: schedulers.SequentialLR(o, [rise(o, 5), schedulers.ExponentialLR(o, gamma)], [begin]), count)])
    cases.append(["chain", {"schedules": [{"1": "warmup", "steps": 4}, {"1": "step", "every": 3, "gamma": gamma}]},
                  count, factors(lambda o: schedulers.ChainedScheduler(
                      [rise(o, 4), schedulers.StepLR(o, 3, gamma)], o), count)])


def plateau(values, **options):
    """The factor after each evaluation."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler = schedulers.ReduceLROnPlateau(optimizer, min_lr=options.pop("min_factor"), eps=0.0, **options)
    result = []
    for value in values:
        scheduler.step(value)
        result.append(optimizer.param_groups[0]["lr"])
    return result


for _ in range(8):
    values = [round(random.uniform(0.5, 1.0) * 0.97 ** i, 3) for i in range(30)]
    options = {"mode": random.choice(["min", "max"]), "factor": random.choice([0.1, 0.5]),
               "patience": random.randint(0, 4), "threshold": random.choice([1e-4, 0.05]),
               "threshold_mode": random.choice(["rel", "abs"]), "cooldown": random.randint(0, 3),
               "min_factor": random.choice([0.0, 0.2])}
    cases.append(["plateau", {**options, "values": values}, 0, plateau(values, **options)])

print("[")
print(",\n".join(json.dumps(case) for case in cases))
print("]")
