"""Writes layers.json: shapes and parameters of layers as PyTorch 2.11 has them.

    python make_layers.py > layers.json

A case is [type, arguments, inputs, outcome]. An input is [shape, dtype]. The outcome is the output
[shape, dtype], "refused" where the constructor raises, or "unfit" where the forward pass does or
gives an empty tensor. Left out is where Strata is stricter: inputs without a batch dim (dim 0 means
something else there), and layers without weights on inputs that they are not made for.
"""

import collections
import json
import math
import random
import warnings

import torch
from torch import nn

warnings.simplefilter("ignore")
torch.manual_seed(0)
random.seed(20240611)
pick = random.choice
rand = random.randint
CASES = {}


def tensor(shape, dtype="float32"):
    if dtype.startswith("float"):
        return torch.rand(shape, dtype=getattr(torch, dtype))
    return torch.zeros(shape, dtype=getattr(torch, dtype))


def describe(x):
    return [list(x.shape), str(x.dtype).removeprefix("torch.")]


def as_python(value):
    return tuple(value) if isinstance(value, list) else value


def construct(kind, args):
    kwargs = {k: as_python(v) for k, v in args.items()}
    for name in ("weight", "pos_weight"):
        if kind.endswith("Loss") and name in kwargs:
            kwargs[name] = torch.tensor(kwargs[name])
    return getattr(nn, kind)(**kwargs)


def forward(kind, module, inputs):
    xs = [tensor(*i) for i in inputs]
    if kind == "MultiheadAttention":
        return module(*(xs * 3 if len(xs) == 1 else xs))[0]
    if kind == "TransformerDecoderLayer" and len(xs) == 1:
        return module(xs[0], xs[0])
    return module(*xs)


def outcome(kind, args, inputs):
    try:
        module = construct(kind, args)
    except Exception:
        return "refused"
    try:
        output = forward(kind, module, inputs)
        return describe(output) if output.numel() > 0 else "unfit"
    except Exception:
        return "unfit"


def add(kind, args, *inputs):
    inputs = [[list(i[0]), i[1]] if isinstance(i, tuple) else [list(i), "float32"] for i in inputs]
    case = [kind, args, inputs, outcome(kind, args, inputs)]
    CASES[json.dumps(case, sort_keys=True)] = case


def maybe(args, probability, name, make):
    if random.random() < probability:
        args[name] = make()


def size(n, low, high):
    """An integer, or one for each dim."""
    return rand(low, high) if random.random() < 0.5 else [rand(low, high) for _ in range(n)]


def convolution(kind, n, transposed=False):
    groups = pick([1, 1, 1, 2, 3])
    args = {"in_channels": groups * rand(1, 2), "out_channels": groups * rand(1, 3),
            "kernel_size": size(n, 1, 5)}
    if random.random() < 0.05:
        args["out_channels"] += 1
    maybe(args, 0.5, "stride", lambda: size(n, 1, 3))
    strings = [] if transposed else ["same", "valid"]
    maybe(args, 0.6, "padding", lambda: pick([size(n, 0, 3), size(n, 0, 3)] + strings))
    maybe(args, 0.4, "dilation", lambda: size(n, 1, 3))
    if groups > 1:
        args["groups"] = groups
    maybe(args, 0.3, "bias", lambda: False)
    if transposed:
        maybe(args, 0.5, "output_padding", lambda: size(n, 0, 2))
    else:
        maybe(args, 0.4, "padding_mode", lambda: pick(["zeros", "reflect", "replicate", "circular"]))
    channels = args["in_channels"] + (random.random() < 0.05)
    shape = [rand(1, 3), channels] + [rand(1, 12) for _ in range(n)]
    shape = pick([shape] * 20 + [shape + [3], shape[:n]])
    add(kind, args, (shape, pick(["float32"] * 15 + ["float64", "int64"])))


def pool(kind):
    args = {"kernel_size": size(2, 1, 4)}
    maybe(args, 0.6, "stride", lambda: size(2, 1, 4))
    maybe(args, 0.5, "padding", lambda: size(2, 0, 2))
    maybe(args, 0.5, "ceil_mode", lambda: True)
    if kind == "MaxPool2d":
        maybe(args, 0.4, "dilation", lambda: size(2, 1, 3))
    else:
        maybe(args, 0.3, "count_include_pad", lambda: False)
        maybe(args, 0.3, "divisor_override", lambda: rand(1, 5))
    shape = [rand(1, 3), rand(1, 3), rand(1, 9), rand(1, 9)]
    add(kind, args, shape[pick([0, 0, 1]):])


def pools():
    for _ in range(220):
        pool("MaxPool2d")
        pool("AvgPool2d")
    for dims in (1, 2, 5):
        add("MaxPool2d", {"kernel_size": 1}, [2] * dims)
        add("AvgPool2d", {"kernel_size": 1}, [2] * dims)
    for _ in range(40):
        out = pick([rand(1, 7), [rand(1, 7), rand(1, 7)], [None, rand(1, 7)], [rand(1, 7), None]])
        add("AdaptiveAvgPool2d", {"output_size": out}, [rand(1, 3) for _ in range(pick([3, 4]))])


def linears():
    for _ in range(40):
        n = rand(1, 6)
        args = {"in_features": n, "out_features": rand(1, 6)}
        maybe(args, 0.4, "bias", lambda: pick([True, False]))
        shape = [rand(1, 4) for _ in range(rand(0, 3))] + [n + (random.random() < 0.2)]
        add("Linear", args, (shape, pick(["float32"] * 6 + ["int64", "float64"])))


def embeddings():
    for _ in range(40):
        n = rand(1, 8)
        args = {"num_embeddings": n, "embedding_dim": rand(1, 5)}
        maybe(args, 0.5, "padding_idx", lambda: rand(-n - 1, n))
        maybe(args, 0.2, "max_norm", lambda: 1.5)
        maybe(args, 0.2, "scale_grad_by_freq", lambda: True)
        shape = [rand(1, 4) for _ in range(rand(1, 3))]
        add("Embedding", args, (shape, pick(["int64"] * 3 + ["int32", "float32", "uint8", "bool"])))


def norms():
    for _ in range(60):
        shape = [rand(1, 4) for _ in range(rand(1, 4))]
        normal = shape[-rand(1, len(shape)):]
        if random.random() < 0.2:
            normal[0] += 1
        args = {"normalized_shape": normal[0] if len(normal) == 1 and rand(0, 1) else normal}
        maybe(args, 0.3, "elementwise_affine", lambda: False)
        maybe(args, 0.3, "eps", lambda: 1e-3)
        add("RMSNorm", args, shape)
        args = dict(args)
        maybe(args, 0.4, "bias", lambda: False)
        add("LayerNorm", args, shape)
    for _ in range(50):
        n = rand(1, 4)
        args = {"num_features": n}
        maybe(args, 0.3, "affine", lambda: False)
        maybe(args, 0.3, "momentum", lambda: pick([None, 0.2]))
        maybe(args, 0.3, "track_running_stats", lambda: False)
        wrong = args.get("affine", True) and random.random() < 0.2
        shape = [rand(2, 3), n + wrong] + [rand(1, 4) for _ in range(pick([2, 2, 2, 1, 3]))]
        add("BatchNorm2d", args, (shape, pick(["float32"] * 8 + ["int64"])))
    for _ in range(50):
        groups = rand(1, 3)
        args = {"num_groups": groups, "num_channels": groups * rand(1, 3) + (random.random() < 0.1)}
        maybe(args, 0.3, "affine", lambda: False)
        shape = [rand(2, 3), args["num_channels"] + (random.random() < 0.2)]
        add("GroupNorm", args, shape + [rand(1, 4) for _ in range(rand(0, 3))])


def activations():
    shapes = [[3], [2, 3], [2, 3, 4], [2, 1, 3, 2]]
    for shape in shapes:
        for dtype in ("float32", "float64"):
            for kind, choices in {
                "ReLU": [{}, {"inplace": True}], "GELU": [{}, {"approximate": "tanh"}],
                "SiLU": [{}, {"inplace": True}], "Tanh": [{}], "Sigmoid": [{}], "Identity": [{}],
                "LeakyReLU": [{}, {"negative_slope": 0.2}], "Dropout": [{}, {"p": 0}, {"p": 1.0}],
                "Softmax": [{"dim": d} for d in range(-5, 5)] + [{}],
                "LogSoftmax": [{"dim": d} for d in range(-5, 5)] + [{}],
                "GLU": [{"dim": d} for d in range(-5, 5)] + [{}],
                "ELU": [{}, {"alpha": 0.5, "inplace": True}], "SELU": [{}, {"inplace": True}],
                "CELU": [{}, {"alpha": -2.0}, {"alpha": 0.0}], "Softplus": [{}, {"beta": 2.0}],
                "Softsign": [{}], "Hardswish": [{}], "Hardsigmoid": [{}],
                "Hardtanh": [{}, {"min_val": 0.5}, {"min_val": 1.0}, {"max_val": -3.0}],
                "ReLU6": [{}], "Mish": [{}], "LogSigmoid": [{}], "Tanhshrink": [{}],
                "Softshrink": [{}, {"lambd": -0.1}], "Hardshrink": [{}, {"lambd": -0.1}],
                "Threshold": [{}, {"threshold": 0.1, "value": 20.0}],
                "PReLU": [{}, {"init": -1.0}, {"num_parameters": 3}, {"num_parameters": 2, "init": 0.5}],
            }.items():
                for args in choices:
                    add(kind, args, (shape, dtype))
    add("GELU", {"approximate": "erf"}, [2, 3])
    add("Dropout", {"p": 1.5}, [2, 3])
    add("Dropout", {"p": -0.1}, [2, 3])


def shaping():
    for _ in range(120):
        shape = [rand(1, 4) for _ in range(rand(1, 5))]
        args = {}
        maybe(args, 0.7, "start_dim", lambda: rand(-6, 5))
        maybe(args, 0.6, "end_dim", lambda: rand(-6, 5))
        add("Flatten", args, (shape, pick(["float32", "int64", "bool"])))
    for _ in range(120):
        shape = [pick([2, 6, 12, 24]) for _ in range(rand(1, 3))]
        dim = rand(-4, 3) if random.random() < 0.2 else rand(-len(shape), len(shape) - 1)
        sizes = [pick([1, 2, 3]) for _ in range(rand(0, 2))]
        rest = shape[dim] // max(1, math.prod(sizes)) if -len(shape) <= dim < len(shape) else 1
        sizes.insert(rand(0, len(sizes)), pick([-1, rest, rest, rest + 1]))
        add("Unflatten", {"dim": dim, "unflattened_size": sizes}, shape)


def attention():
    for _ in range(120):
        heads = rand(1, 3)
        embed = heads * rand(1, 3) + (random.random() < 0.1)
        args = {"embed_dim": embed, "num_heads": heads}
        for name in ("bias", "add_bias_kv", "add_zero_attn", "batch_first"):
            maybe(args, 0.3, name, lambda: name != "bias")
        maybe(args, 0.2, "kdim", lambda: rand(1, 4))
        maybe(args, 0.2, "vdim", lambda: rand(1, 4))
        n, s = rand(1, 3), rand(1, 4)
        other = embed + (random.random() < 0.1)
        if random.random() < 0.5:
            add("MultiheadAttention", args, [s, n, other])
        else:
            t, m = rand(1, 4), n + (random.random() < 0.1)
            def shape(length, batch, width):
                return [batch, length, width] if args.get("batch_first") else [length, batch, width]
            add("MultiheadAttention", args, shape(s, n, other), shape(t, m, args.get("kdim", embed)),
                shape(t + (random.random() < 0.1), m, args.get("vdim", embed)))


def transformers():
    for kind in ("TransformerEncoderLayer", "TransformerDecoderLayer"):
        for _ in range(60):
            heads = rand(1, 3)
            width = heads * rand(1, 3) + (random.random() < 0.1)
            args = {"d_model": width, "nhead": heads, "dim_feedforward": rand(1, 6)}
            maybe(args, 0.3, "activation", lambda: pick(["gelu", "relu", "tanh"]))
            for name in ("batch_first", "norm_first"):
                maybe(args, 0.4, name, lambda: True)
            maybe(args, 0.3, "bias", lambda: False)
            shape = [rand(1, 3), rand(1, 3), width + (random.random() < 0.1)]
            inputs = [(shape, pick(["float32"] * 9 + ["int64"]))]
            if kind == "TransformerDecoderLayer" and random.random() < 0.5:
                memory = list(shape)
                memory[rand(0, 1)] = rand(1, 3)
                inputs.append(memory)
            if random.random() < 0.05:
                inputs = [[2, 2, 2, width]]
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


def main():
    for _ in range(260):
        convolution("Conv1d", 1)
        convolution("Conv2d", 2)
        convolution("ConvTranspose2d", 2, transposed=True)
    for make in (linears, pools, embeddings, norms, activations, shaping, attention, transformers,
                 losses):
        make()
    parameters = {}
    count = collections.Counter()
    for kind, args, _, result in CASES.values():
        if isinstance(result, str) or kind.endswith("Loss"):
            continue
        module = construct(kind, args)
        trainable = {name for name, _ in module.named_parameters()}
        state = [[name, list(value.shape), name not in trainable]
                 for name, value in module.state_dict().items()]
        count[kind] += 1
        if state and count[kind] <= 40:
            parameters[json.dumps([kind, args])] = [kind, args, state]
    print('{"shapes": [')
    print(",\n".join(json.dumps(case, separators=(",", ":")) for case in CASES.values()))
    print('], "parameters": [')
    print(",\n".join(json.dumps(case, separators=(",", ":")) for case in parameters.values()))
    print("]}")


main()
