"""Every optimizer and every schedule of the learning rate over twenty steps against torch.optim:
losses, norms of the gradient, rates, and the parameters and moments after the last step."""

import training
from training import RUN
from values import tensor

STEPS = 20
BETAS = [[0.9, 0.999], [0.5, 0.9], [0.0, 0.99]]
DECAYS, EPS, BOTH = [0.0, 0.01, 0.1], [1e-8, 1e-6, 1e-3], [True, False]
ADAM = {"betas": BETAS, "eps": EPS, "weight_decay": DECAYS, "amsgrad": BOTH}
OPTIONS = {
    "sgd": {"momentum": [0.0, 0.5, 0.9], "dampening": [0.0, 0.3], "weight_decay": DECAYS, "nesterov": BOTH},
    "adam": ADAM,
    "adamw": ADAM,
    "rmsprop": {"alpha": [0.99, 0.5], "eps": EPS, "weight_decay": DECAYS, "momentum": [0.0, 0.9],
                "centered": BOTH, "maximize": BOTH},
    "adagrad": {"lr_decay": [0.0, 0.1], "weight_decay": DECAYS, "initial_accumulator_value": [0.0, 0.1],
                "eps": [1e-10, 1e-6], "maximize": BOTH},
    "adadelta": {"rho": [0.9, 0.5], "eps": EPS, "weight_decay": DECAYS, "maximize": BOTH},
    "nadam": {"betas": BETAS, "eps": EPS, "weight_decay": DECAYS, "momentum_decay": [4e-3, 0.1],
              "decoupled_weight_decay": BOTH, "maximize": BOTH},
    "radam": {"betas": BETAS, "eps": EPS, "weight_decay": DECAYS, "decoupled_weight_decay": BOTH,
              "maximize": BOTH},
    "adamax": {"betas": BETAS, "eps": EPS, "weight_decay": DECAYS, "maximize": BOTH},
    "adafactor": {"beta2_decay": [-0.8, -0.5], "d": [1.0, 2.0], "weight_decay": DECAYS, "maximize": BOTH},
}


def optimizer(chance):
    kind = chance.choice(list(OPTIONS))
    listed = {"lr": [0.0, 1e-3, 0.01, 0.05], **OPTIONS[kind]}
    options = {name: chance.choice(values) for name, values in listed.items()}
    return {"type": kind, **chance.some(options, 0.7)}


def groups(chance):
    """Groups of layers, each with a Linear: a group that holds for no parameter is refused."""
    def one():
        return {"layers": chance.choice([[0], [2], [0, 1], [1, 2], [0, 2]]),
                **chance.some({"lr": chance.choice([0.0, 0.02]), "weight_decay": chance.choice([0.0, 0.05])}, 0.7)}
    return [one() for _ in range(chance.randint(1, 2))]


def lr_schedule(chance):
    steps = chance.choice([None, 5, 12, 20, 30])
    kind = chance.choice([None, "constant", "warmup", "linear", "cosine", "step", "function",
                          "polynomial", "multi_step", "exponential", "cosine_restarts", "one_cycle"])
    options = {"warmup": {"steps": chance.randint(1, 8)},
               "linear": {"steps": steps, "final": chance.choice([0.0, 0.1]), "warmup": chance.choice([0, 3])},
               "cosine": {"steps": steps, "final": chance.choice([0.0, 0.1]), "warmup": chance.choice([0, 3])},
               "step": {"every": chance.randint(1, 7), "gamma": chance.choice([0.1, 0.5]),
                        "warmup": chance.choice([0, 3])},
               "polynomial": {"steps": steps, "power": chance.choice([0.5, 1.0, 2.0]), "warmup": chance.choice([0, 3])},
               "multi_step": {"milestones": sorted(chance.randint(1, 18) for _ in range(3)),
                              "gamma": chance.choice([0.1, 0.5]), "warmup": chance.choice([0, 2])},
               "exponential": {"gamma": chance.choice([0.9, 0.5]), "warmup": chance.choice([0, 2])},
               "cosine_restarts": {"T_0": chance.randint(1, 6), "T_mult": chance.randint(1, 3),
                                   "final": chance.choice([0.0, 0.2]), "warmup": chance.choice([0, 2])},
               "one_cycle": {"pct_start": chance.choice([0.2, 0.3]), "three_phase": chance.choice([True, False]),
                             "anneal_strategy": chance.choice(["cos", "linear"]),
                             "div_factor": chance.choice([10.0, 25.0]),
                             "final_div_factor": chance.choice([100.0, 1e4])}}.get(kind, {})
    needed = {name: options[name] for name in
              {"warmup": ["steps"], "step": ["every"], "multi_step": ["milestones"], "exponential": ["gamma"],
               "cosine_restarts": ["T_0"]}.get(kind, [])}
    kept = {name: value for name, value in chance.some(options, 0.7).items() if value is not None}
    return {"type": kind, **kept, **needed} if kind else None


def generate(chance):
    width, hidden, out = chance.randint(2, 5), chance.randint(2, 6), chance.randint(1, 3)
    rows = chance.randint(1, 3)
    def linear(a, b):
        return {"nn": {"type": "Linear", "positional": [a, b], "named": {}}}
    chosen = optimizer(chance)
    if chance.random() < 0.3:
        chosen["groups"] = groups(chance)
    return {
        "layers": [linear(width, hidden), {"nn": {"type": "Tanh", "positional": [], "named": {}}}, linear(hidden, out)],
        "loss": chance.choice([{"type": "MSELoss", "named": {}}, {"type": "function"},
                               {"type": "MSELoss", "named": {"reduction": "sum"}}]),
        "input": tensor([rows, width], 1), "target": tensor([rows, out], 2),
        "micro_batches": chance.randint(1, 3), "replicas": 1, "steps": STEPS, "seed": chance.randint(0, 9999),
        "optimizer": chosen, "lr_schedule": lr_schedule(chance),
        "clip": chance.choice([None, None, 0.1, 1.0, 100.0]), "freeze": chance.choice([None, None, None, [0], [2]]),
    }


def texts(case, number):
    job, _ = training.job_text(case)
    yield number, "function() return driver.trains(%s, { save = { dir = \"saves/%d\" } }) end" % (job, number)


def verdict(case, outcomes):
    return training.judge_twin(training.expected_training, case, outcomes[0])
