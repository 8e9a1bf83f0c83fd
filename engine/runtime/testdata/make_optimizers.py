"""Writes optimizers.json: what torch.optim of PyTorch 2.11 makes of a parameter in five steps.

    python make_optimizers.py > optimizers.json

Each case is [type, options, shape, elements after the steps]. Element i begins as sin(0.7 i), its
gradient in step t is cos(0.3 i + 1.1 t). Lion is not in PyTorch: its paper's algorithm stands here.
"""

import json
import math

import torch


class Lion(torch.optim.Optimizer):
    """Algorithm 2 of Chen et al., arXiv:2302.06675."""

    def __init__(self, params, lr=1e-4, betas=(0.9, 0.99), weight_decay=0.0, maximize=False):
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay, maximize=maximize))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                g = -p.grad if group["maximize"] else p.grad
                m = self.state[p].setdefault("exp_avg", torch.zeros_like(p))
                beta1, beta2 = group["betas"]
                update = (beta1 * m + (1 - beta1) * g).sign()
                p.sub_(group["lr"] * (update + group["weight_decay"] * p))
                m.mul_(beta2).add_(g, alpha=1 - beta2)


CASES = {
    "sgd": [{}, {"momentum": 0.9, "dampening": 0.25, "weight_decay": 0.01}, {"momentum": 0.9, "maximize": True},
            {"lr": 0.05, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}],
    "adam": [{}, {"betas": [0.8, 0.9], "eps": 1e-6, "amsgrad": True}, {"weight_decay": 0.1, "maximize": True},
             {"weight_decay": 0.1, "decoupled_weight_decay": True}],
    "adamw": [{}, {"weight_decay": 0.1, "amsgrad": True}, {"maximize": True}],
    "rmsprop": [{}, {"alpha": 0.9, "eps": 1e-3, "weight_decay": 0.1}, {"momentum": 0.9, "centered": True},
                {"centered": True, "maximize": True}, {"momentum": 0.5}],
    "adagrad": [{}, {"lr_decay": 0.1, "weight_decay": 0.1}, {"initial_accumulator_value": 0.5, "maximize": True}],
    "adadelta": [{}, {"rho": 0.5, "eps": 1e-3, "weight_decay": 0.1}, {"maximize": True}],
    "nadam": [{}, {"betas": [0.5, 0.9], "momentum_decay": 0.1, "weight_decay": 0.1},
              {"weight_decay": 0.1, "decoupled_weight_decay": True, "maximize": True}],
    "radam": [{}, {"betas": [0.5, 0.6], "weight_decay": 0.1}, {"betas": [0.9, 0.7], "maximize": True},
              {"weight_decay": 0.1, "decoupled_weight_decay": True}],
    "adamax": [{}, {"betas": [0.5, 0.9], "eps": 1e-3, "weight_decay": 0.1}, {"maximize": True}],
    "lion": [{}, {"lr": 0.01, "betas": [0.5, 0.9], "weight_decay": 0.1}, {"maximize": True}],
    "adafactor": [{}, {"lr": 0.1, "beta2_decay": -0.5, "weight_decay": 0.1}, {"eps": [1e-3, 0.1], "d": 1.5},
                  {"maximize": True}],
    "muon": [{}, {"lr": 0.05, "momentum": 0.5, "nesterov": False}, {"adjust_lr_fn": "match_rms_adamw"},
             {"ns_steps": 3, "weight_decay": 0.5, "adjust_lr_fn": "original"}],
}
SHAPES = {"adafactor": [[20], [4, 5], [2, 2, 5]], "muon": [[4, 5], [5, 4]]}
KINDS = {name.lower(): getattr(torch.optim, name) for name in
         "SGD Adam AdamW RMSprop Adagrad Adadelta NAdam RAdam Adamax Adafactor Muon".split()}
KINDS["lion"] = Lion


def run(kind, options, shape):
    more = {} if kind in ("lion", "muon") else {"foreach": False}
    p = torch.nn.Parameter(torch.tensor([math.sin(0.7 * i) for i in range(20)]).view(shape))
    optimizer = KINDS[kind]([p], **options, **more)
    for t in range(5):
        p.grad = torch.tensor([math.cos(0.3 * i + 1.1 * t) for i in range(20)]).view(shape)
        optimizer.step()
    return p.flatten().tolist()


print("[")
print(",\n".join(json.dumps([kind, options, shape, run(kind, options, shape)])
                 for kind, cases in CASES.items() for options in cases for shape in SHAPES.get(kind, [[20]])))
print("]")
