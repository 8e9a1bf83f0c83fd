"""Writes layers_spec.json: shapes and parameters of layers as PyTorch 2.11 has them.

    python make_layers_spec.py > layers_spec.json

A case is [type, arguments, inputs, outcome]. An input is [shape, dtype]. The outcome is the first
output [shape, dtype], "refused" where the constructor raises, or "unfit" where the forward pass does or
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
    if kind == "GaussianNLLLoss":  # here both outputs come before the target
        return module(xs[0], xs[2], xs[1])
    if kind == "EmbeddingBag" and len(xs) == 2:
        return module(xs[0], per_sample_weights=xs[1])
    if kind in ("RNN", "GRU", "LSTM"):
        return module(xs[0], *([tuple(xs[1:])] if len(xs) > 2 else xs[1:]))[0]
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
    args = {"in_channels": groups * rand(1, 2), "out_channels": groups * rand(1, 3), "kernel_size": size(n, 1, 5)}
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


def pool(kind, n=2):
    args = {"kernel_size": size(n, 1, 4)}
    maybe(args, 0.6, "stride", lambda: size(n, 1, 4))
    maybe(args, 0.5, "padding", lambda: size(n, 0, 2))
    maybe(args, 0.5, "ceil_mode", lambda: True)
    if kind.startswith("Max"):
        maybe(args, 0.4, "dilation", lambda: size(n, 1, 3))
    else:
        maybe(args, 0.3, "count_include_pad", lambda: False)
        if n > 1:
            maybe(args, 0.3, "divisor_override", lambda: rand(1, 5))
    shape = [rand(1, 3), rand(1, 3)] + [rand(1, 9) for _ in range(n)]
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


def of_other_dims():
    """What the families have beside their first members."""
    for _ in range(80):
        convolution("Conv3d", 3)
        convolution("ConvTranspose1d", 1, transposed=True)
        convolution("ConvTranspose3d", 3, transposed=True)
    for n in (1, 2, 3):
        for _ in range(40):
            if n != 2:
                pool("MaxPool%dd" % n, n)
                pool("AvgPool%dd" % n, n)
            shape = [rand(1, 3) for _ in range(pick([n + 1, n + 2]))]
            for kind in ["AdaptiveMaxPool"] + ["AdaptiveAvgPool"] * (n != 2):
                choices = [None, rand(1, 7)] if n > 1 else [rand(1, 7)]
                out = pick([rand(1, 7), [pick(choices) for _ in range(n)]])
                add("%s%dd" % (kind, n), {"output_size": out}, shape)
            args = {"num_features": rand(1, 4)}
            maybe(args, 0.5, "affine", lambda: pick([True, False]))
            maybe(args, 0.3, "momentum", lambda: pick([None, 0.2]))
            maybe(args, 0.3, "track_running_stats", lambda: pick([True, False]))
            for kind in ["InstanceNorm"] + ["BatchNorm"] * (n != 2):
                wrong = args.get("affine", kind[0] == "B") and random.random() < 0.2
                shape = [rand(2, 3), args["num_features"] + wrong] + [rand(1, 4) for _ in range(n)]
                add("%s%dd" % (kind, n), args, (shape, pick(["float32"] * 8 + ["int64"])))
        for _ in range(24):
            add("Dropout%dd" % n, {"p": pick([0.0, 0.3, 1.0, 1.5])},
                ([rand(1, 3) for _ in range(n + 2)], pick(["float32", "float64"])))
    for args in ({}, {"p": 0.1}, {"p": 1}, {"p": 1.1}):
        for shape in ([3], [2, 3], [2, 3, 4]):
            add("AlphaDropout", args, shape)
    add("BatchNorm1d", {"num_features": 3}, [4, 3])
    add("BatchNorm1d", {"num_features": 3}, [4, 2])


def spatial():
    for n in (1, 2, 3):
        for kind in ("Zero", "Constant", "Reflection", "Replication", "Circular"):
            constant = kind in ("Zero", "Constant")
            for _ in range(30):
                low = -2 if constant else 0
                args = {"padding": size(2 * n, low, 3)}
                if kind == "Constant":
                    args["value"] = 0.5
                lead = pick([1, 2, 2, 3] if constant else [2])
                shape = [rand(1, 2) for _ in range(lead)] + [rand(1, 5) for _ in range(n)]
                add("%sPad%dd" % (kind, n), args, shape)
    for _ in range(120):
        n = rand(1, 3)
        mode = pick(["nearest", "linear", "bilinear", "bicubic", "trilinear", "nearest-exact", "area"])
        args = {"mode": mode}
        by = pick(["size", "size", "scale_factor", "scale_factor", None])
        each = (lambda: rand(1, 8)) if by == "size" else (lambda: pick([0.5, 1.0, 1.6, 2.0, 3.0]))
        if by:
            args[by] = pick([each(), [each() for _ in range(n)]])
        maybe(args, 0.2, "align_corners", lambda: pick([True, False]))
        add("Upsample", args, [rand(1, 2), rand(1, 2)] + [rand(1, 5) for _ in range(n)])
    for _ in range(30):
        by = rand(1, 3)
        lead = [rand(1, 2) for _ in range(rand(1, 2))]
        off = random.random() < 0.2
        add("PixelShuffle", {"upscale_factor": by}, lead + [by * by * rand(1, 2) + off, rand(1, 3), rand(1, 3)])
        add("PixelUnshuffle", {"downscale_factor": by}, lead + [rand(1, 3), by * rand(1, 2) + off, by * rand(1, 2)])
    for _ in range(60):
        args = {"kernel_size": size(2, 1, 3)}
        maybe(args, 0.4, "dilation", lambda: size(2, 1, 2))
        maybe(args, 0.4, "padding", lambda: size(2, 0, 2))
        maybe(args, 0.4, "stride", lambda: size(2, 1, 3))
        image = [rand(1, 7), rand(1, 7)]
        channels = rand(1, 3)
        add("Unfold", args, [rand(1, 3), channels] + image)
        try:
            columns = nn.Unfold(**{k: as_python(v) for k, v in args.items()})(torch.zeros([1, channels] + image))
        except RuntimeError:
            continue
        shape = [rand(1, 3), columns.shape[1] + (random.random() < 0.1), columns.shape[2] + (random.random() < 0.1)]
        add("Fold", {"output_size": image, **args}, shape)


def pairs_and_bags():
    for _ in range(40):
        a, b = rand(1, 4), rand(1, 4)
        lead = [rand(1, 3) for _ in range(rand(1, 2))]
        args = {"in1_features": a, "in2_features": b, "out_features": rand(1, 4)}
        maybe(args, 0.3, "bias", lambda: False)
        add("Bilinear", args, lead + [a], lead + [b + (random.random() < 0.2)])
        shape = [rand(1, 3) for _ in range(rand(2, 3))]
        other = [pick([n, n, 1]) for n in shape]
        add("CosineSimilarity", pick([{}, {"dim": rand(-4, 3)}]), shape, other)
        add("PairwiseDistance", pick([{}, {"p": 1.0}, {"keepdim": True}]), shape, other)
    for _ in range(40):
        n = rand(1, 8)
        args = {"num_embeddings": n, "embedding_dim": rand(1, 5)}
        maybe(args, 0.5, "padding_idx", lambda: rand(-n - 1, n))
        maybe(args, 0.5, "mode", lambda: pick(["sum", "mean", "max", "min"]))
        maybe(args, 0.2, "scale_grad_by_freq", lambda: True)
        shape = [rand(1, 4) for _ in range(pick([2, 2, 2, 1, 3]))]
        inputs = [(shape, pick(["int64"] * 3 + ["int32", "float32"]))]
        if random.random() < 0.3 and inputs[0][1] == "int64":
            inputs.append(shape)
        add("EmbeddingBag", args, *inputs)


def recurrent():
    for kind in ("RNN", "LSTM", "GRU"):
        for _ in range(50):
            features, hidden = rand(1, 4), rand(1, 4)
            args = {"input_size": features, "hidden_size": hidden}
            maybe(args, 0.4, "num_layers", lambda: rand(1, 3))
            maybe(args, 0.3, "bias", lambda: False)
            maybe(args, 0.4, "bidirectional", lambda: True)
            maybe(args, 0.4, "batch_first", lambda: True)
            maybe(args, 0.2, "dropout", lambda: pick([0.3, 1.5]))
            if kind == "RNN":
                maybe(args, 0.3, "nonlinearity", lambda: pick(["relu", "tanh", "gelu"]))
            if kind == "LSTM":
                maybe(args, 0.3, "proj_size", lambda: rand(1, 3))
            batch, length = rand(1, 3), rand(1, 4)
            first = args.get("batch_first")
            x = ([batch, length] if first else [length, batch]) + [features + (random.random() < 0.1)]
            inputs = [(x, pick(["float32"] * 9 + ["int64"]))]
            cells = args.get("num_layers", 1) * (2 if args.get("bidirectional") else 1)
            if random.random() < 0.4:
                inputs.append([cells, batch + (random.random() < 0.1), args.get("proj_size", hidden)])
                if kind == "LSTM":
                    inputs.append([cells, batch, hidden])
            add(kind, args, *inputs)


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


def whole_transformers():
    for _ in range(30):
        heads = rand(1, 3)
        width = heads * rand(1, 3) + (random.random() < 0.1)
        args = {"d_model": width, "nhead": heads, "num_encoder_layers": rand(1, 2), "num_decoder_layers": rand(1, 2),
                "dim_feedforward": rand(1, 6)}
        for name in ("batch_first", "norm_first"):
            maybe(args, 0.3, name, lambda: True)
        maybe(args, 0.3, "bias", lambda: False)
        source = [rand(1, 3), rand(1, 3), width + (random.random() < 0.1)]
        target = list(source)
        target[rand(0, 1)] = rand(1, 3)
        add("Transformer", args, source, target)


def main():
    for _ in range(260):
        convolution("Conv1d", 1)
        convolution("Conv2d", 2)
        convolution("ConvTranspose2d", 2, transposed=True)
    for make in (linears, pools, embeddings, norms, activations, shaping, attention, transformers,
                 losses, of_other_dims, spatial, pairs_and_bags, recurrent, more_losses, whole_transformers):
        make()
    parameters = {}
    count = collections.Counter()
    for kind, args, _, result in CASES.values():
        if isinstance(result, str) or kind.endswith("Loss"):
            continue
        module = construct(kind, args)
        trainable = {name for name, _ in module.named_parameters()}
        state = [[name, list(value.shape), name not in trainable] for name, value in module.state_dict().items()]
        count[kind] += 1
        if state and count[kind] <= 40:
            parameters[json.dumps([kind, args])] = [kind, args, state]
    print('{"shapes": [')
    print(",\n".join(json.dumps(case, separators=(",", ":")) for case in CASES.values()))
    print('], "parameters": [')
    print(",\n".join(json.dumps(case, separators=(",", ":")) for case in parameters.values()))
    print("]}")


main()
