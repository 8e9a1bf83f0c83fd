"""Writes layers_spec.json: shapes and parameters of layers as PyTorch 2.11 has them.

    PYTHONPATH=tests:tests/differential python engine/layers/testdata/make_layers_spec.py > layers_spec.json

A case is [type, arguments, inputs, outcome]. An input is [shape, dtype]. The outcome is the first
output [shape, dtype], "refused" where the constructor raises, or "unfit" where the forward pass does or
gives an empty tensor. Left out is where Strata is stricter: inputs without a batch dim (dim 0 means
something else there), and layers without weights on inputs that they are not made for.
Layers and their arguments are drawn as tests/differential draws them.
"""

import json
import math
import random
import warnings

import layers
from chance import Chance
from pytorch import torch

nn = torch.nn
warnings.simplefilter("ignore")
torch.manual_seed(0)
random.seed(20240611)
pick = random.choice
rand = random.randint
CASES = {}
PARAMETERS = {}
MANY = ["Conv1d", "Conv2d", "Conv3d", "ConvTranspose2d", "MaxPool2d", "Flatten"]


def tensor(shape, dtype="float32"):
    if dtype.startswith("float"):
        return torch.rand(shape, dtype=getattr(torch, dtype))
    return torch.zeros(shape, dtype=getattr(torch, dtype))


def construct(kind, args):
    if kind.endswith("Loss"):
        return getattr(nn, kind)(**{name: torch.tensor(value) if name.endswith("weight") else value
                                    for name, value in args.items()})
    return layers.module({"type": kind, "positional": [], "named": args})


def outcome(kind, args, inputs):
    try:
        module = construct(kind, args)
    except Exception:
        return "refused"
    xs = [tensor(*x) for x in inputs]
    if kind == "GaussianNLLLoss":  # here both outputs come before the target
        xs[1:] = reversed(xs[1:])
    try:
        output = layers.first(module(*xs))
    except Exception:
        return "unfit"
    if not kind.endswith("Loss"):
        note_parameters(kind, args, module)
    return [list(output.shape), str(output.dtype).removeprefix("torch.")] if output.numel() > 0 else "unfit"


def note_parameters(kind, args, module):
    trainable = {name for name, _ in module.named_parameters()}
    state = [[name, list(value.shape), name not in trainable] for name, value in module.state_dict().items()]
    of_kind = PARAMETERS.setdefault(kind, {})
    if state and len(of_kind) < 40:
        of_kind[json.dumps(args)] = [kind, args, state]


def add(kind, args, *inputs):
    inputs = [[list(x[0]), x[1]] if isinstance(x, tuple) else [list(x), "float32"] for x in inputs]
    case = [kind, args, inputs, outcome(kind, args, inputs)]
    CASES[json.dumps(case, sort_keys=True)] = case


def maybe(args, probability, name, make):
    if random.random() < probability:
        args[name] = make()


def is_left_out(kind, args, shape):
    """Inputs without a batch dim or with one value per channel, and channels that no weight counts."""
    if "Conv" in kind:
        return len(shape) != int(kind[-2]) + 2
    channels = args.get("num_features", args.get("num_channels"))
    return channels and (math.prod(shape) == shape[1] or shape[1] != channels and not args.get("affine", True))


def other_dtype(kind, args, dtype):
    """One that layers with weights refuse, or that others pass on."""
    try:
        has_weights = any(True for _ in construct(kind, args).parameters())
    except Exception:
        return dtype
    if dtype == "int64":
        return pick(["int32", "float32", "uint8", "bool"])
    integers, doubles = has_weights or kind == "Flatten", not kind[:-2].endswith("Norm") and not kind.endswith("Norm")
    return pick([dtype] + ["int64"] * integers + ["float64"] * doubles)


def drawn(kind, number):
    """Without masks, whose shapes the help tells in words."""
    args, inputs = layers.arguments(Chance(kind, 1, number, wrongness=0.1), kind)
    args = {name: value for name, value in args.items() if value is not None}
    inputs = [(x["shape"], x["dtype"]) for x in inputs if x["k"] != layers.MASK]
    shape, dtype = inputs[0]
    if random.random() < 0.15 and len(inputs) == 1:
        inputs[0] = shape, other_dtype(kind, args, dtype)
    if not is_left_out(kind, args, shape):
        add(kind, args, *inputs)


def losses():
    for _ in range(120):
        n, c = rand(1, 3), rand(1, 4)
        rest = [rand(1, 3) for _ in range(rand(0, 2))]
        output = [n, c] + rest
        target = [n] + rest
        if random.random() < 0.2:
            target[rand(0, len(target) - 1)] += 1
        args = {}
        maybe(args, 0.4, "reduction", lambda: pick(["mean", "sum", "all"]))
        maybe(args, 0.3, "ignore_index", lambda: rand(-1, 2))
        maybe(args, 0.3, "weight", lambda: [1.0] * (c + (random.random() < 0.2)))
        add("NLLLoss", args, output, (target, "int64"))
        args = dict(args)
        maybe(args, 0.3, "label_smoothing", lambda: pick([0.1, 1.0, 1.5]))
        if random.random() < 0.3 and "ignore_index" not in args:
            add("CrossEntropyLoss", args, output, output)
        else:
            add("CrossEntropyLoss", args, output, (target, "int64"))
    for _ in range(20):
        shape = [rand(1, 3) for _ in range(rand(1, 3))]
        for kind in ("MSELoss", "L1Loss", "BCEWithLogitsLoss"):
            args = {}
            maybe(args, 0.5, "reduction", lambda: pick(["mean", "sum", "all"]))
            if kind.startswith("BCE"):
                maybe(args, 0.4, "weight", lambda: [1.0] * (shape[-1] + (random.random() < 0.2)))
                maybe(args, 0.4, "pos_weight", lambda: [1.0] * shape[-1])
            add(kind, args, shape, shape)


def more_losses():
    for _ in range(20):
        shape = [rand(1, 3) for _ in range(rand(1, 3))]
        for kind, name, choices in [
                ("HuberLoss", "delta", [1.0, 0.3, 0.0]), ("SmoothL1Loss", "beta", [1.0, 0.3, 0.0]),
                ("BCELoss", "weight", [[1.0] * shape[-1]]), ("KLDivLoss", "log_target", [True, False]),
                ("PoissonNLLLoss", "log_input", [True, False])]:
            args = {}
            maybe(args, 0.5, "reduction", lambda: pick(["mean", "sum", "all"] + ["batchmean"] * (kind[0] == "K")))
            maybe(args, 0.5, name, lambda: pick(choices))
            add(kind, args, shape, shape)
        args = {}
        maybe(args, 0.5, "reduction", lambda: pick(["mean", "sum", "all"]))
        variance = pick([shape, shape, shape[:-1], shape[:-1] + [1], [1] + shape[1:], shape + [2]])
        add("GaussianNLLLoss", args, shape, variance, shape)
        n, d = rand(1, 3), rand(1, 4)
        add("CosineEmbeddingLoss", args, [n, d], [n, d + (random.random() < 0.1)], [n])
        lead = [rand(1, 3) for _ in range(rand(1, 2))]
        add("TripletMarginLoss", args, *[lead + [d]] * 3)
        length, labels = rand(2, 5), rand(1, 2)
        add("CTCLoss", args, [length, n, 4], ([n, labels], "int64"), ([n + (random.random() < 0.2)], "int64"),
            ([n], "int64"))


def main():
    for kind in layers.GENERATORS:
        if kind not in layers.CONTAINERS:
            for number in range(240 if kind in MANY else 36):
                drawn(kind, number)
    losses()
    more_losses()
    print('{"shapes": [')
    print(",\n".join(json.dumps(case, separators=(",", ":")) for case in CASES.values()))
    print('], "parameters": [')
    print(",\n".join(json.dumps(case, separators=(",", ":")) for of in PARAMETERS.values() for case in of.values()))
    print("]}")


main()
