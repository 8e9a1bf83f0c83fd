"""Writes lr_schedules.json: factors of learning-rate schedules as PyTorch 2.11 computes them.

    PYTHONPATH=tests:tests/differential python engine/job/testdata/make_lr_schedules.py > lr_schedules.json

Each case is [type, options, steps of the training, factors of the first steps]. Schedules are drawn as
tests/differential draws them.
"""

import json
import random
import warnings

import optimizers
import training
from chance import Chance
from pytorch import torch

schedulers = torch.optim.lr_scheduler
warnings.simplefilter("ignore")
random.seed(7)
cases = []


def factors(make, count):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler = make(optimizer)
    result = []
    for _ in range(count):
        result.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return result


def rise(optimizer, warmup):
    return schedulers.LinearLR(optimizer, start_factor=1 / (warmup + 1), total_iters=warmup)


for number in range(120):
    schedule = optimizers.lr_schedule(Chance("lr_schedule", 7, number)) or {"type": "constant"}
    options = {name: value for name, value in schedule.items() if name != "type"}
    count = random.randint(20, 25)
    if schedule["type"] != "function":
        cases.append([schedule["type"], options, count, training.factors(schedule, count)])

for _ in range(6):
    gamma, count = random.choice([0.5, 0.9, 1.0]), random.randint(12, 25)
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
