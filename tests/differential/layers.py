"""Every layer with random arguments against the module of PyTorch: output, gradients of inputs and
parameters, initial values, buffers, and the output of evaluation.

A case is one job of a probe (layer 0, whose parameters are added to the inputs), the layer and a
weighted sum as its loss. A step with lr = 0 leaves the gradients in the momentum, which a save has.
"""

import inspect
import math
import re

import values
from compare import Verdict, described, judge
from pytorch import seed_forward, torch
from values import tensor

nn = torch.nn
SEED = 1234


# Layers as modules of PyTorch, where they take and give something else.

class Attention(nn.MultiheadAttention):
    def __init__(self, *args, causal=False, **named):
        super().__init__(*args, **named)
        self.causal = causal

    def forward(self, query, key=None, value=None, key_padding_mask=None, attn_mask=None):
        if value is None and key is not None:  # of two tensors, the second is the padding's mask
            key, key_padding_mask = None, key
        key, value = (query, query) if key is None else (key, value)
        if key_padding_mask is not None or attn_mask is not None:
            return super().forward(query, key, value, key_padding_mask, need_weights=False, attn_mask=attn_mask)[0]
        mask = causal_mask(query, self.batch_first) if self.causal else None
        # With the hint is_causal PyTorch would hide the added key from all queries.
        return super().forward(query, key, value, need_weights=False, attn_mask=mask)[0]


class Encoder(nn.TransformerEncoderLayer):
    def __init__(self, *args, causal=False, **named):
        super().__init__(*args, **named)
        self.causal = causal

    def forward(self, x, src_key_padding_mask=None, src_mask=None):
        mask = causal_mask(x, self.self_attn.batch_first) if self.causal else src_mask
        return super().forward(x, src_mask=mask, src_key_padding_mask=src_key_padding_mask,
                               is_causal=self.causal and src_key_padding_mask is None)


class Decoder(nn.TransformerDecoderLayer):
    def __init__(self, *args, causal=False, **named):
        super().__init__(*args, **named)
        self.causal = causal

    def forward(self, x, memory=None, **masks):
        if self.causal:
            mask = causal_mask(x, self.self_attn.batch_first)
            masks.update(tgt_mask=mask, tgt_is_causal=True)
            if memory is None:
                masks.update(memory_mask=mask, memory_is_causal=True)
        return super().forward(x, x if memory is None else memory, **masks)


# The faster path of evaluation takes a mask of numbers for one that is true where nothing is seen: NaN.
torch.backends.mha.set_fastpath_enabled(False)


class Transformer(nn.Transformer):
    def __init__(self, *args, causal=False, **named):
        super().__init__(*args, **named)
        self.causal = causal

    def forward(self, source, target, *masks, **named):
        names = ["src_key_padding_mask", "tgt_key_padding_mask", "memory_key_padding_mask", "src_mask", "tgt_mask",
                 "memory_mask"]
        given = {**dict(zip(names, masks)), **named}
        if self.causal:
            given.update(tgt_mask=causal_mask(target, self.batch_first),
                         tgt_is_causal="tgt_key_padding_mask" not in given)
        return super().forward(source, target, **given)


class WithStates:
    """A recurrent layer that takes its first states one by one."""

    def forward(self, x, *states):
        if not states:
            return super().forward(x)
        return super().forward(x, tuple(states) if len(states) > 1 else states[0])


class Rnn(WithStates, nn.RNN):
    pass


class Lstm(WithStates, nn.LSTM):
    pass


class Gru(WithStates, nn.GRU):
    pass


class EmbeddingBag(nn.EmbeddingBag):
    def forward(self, indices, factors=None):
        if self.scale_grad_by_freq:  # on the CPU PyTorch's takes other indices' counts
            return self._of_vectors(indices, factors)
        return super().forward(indices, per_sample_weights=factors)

    def _of_vectors(self, indices, factors):
        vectors = nn.functional.embedding(indices, self.weight, self.padding_idx, self.max_norm, self.norm_type, True)
        counted = (indices != (-1 if self.padding_idx is None else self.padding_idx)).unsqueeze(-1)
        vectors = vectors * counted * (1 if factors is None else factors.unsqueeze(-1))
        return vectors.sum(1) / (counted.sum(1).clamp_min(1) if self.mode == "mean" else 1)


def rotated(x, theta):
    if theta is None:
        return x
    half = x.shape[-1] // 2
    angle = torch.arange(x.shape[-2])[:, None] * theta ** (-torch.arange(half) / half)
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1)


class RotaryEmbedding(nn.Module):
    def __init__(self, dim, theta=10000.0):
        super().__init__()
        if dim % 2:
            raise ValueError("an odd number of features")
        self.theta = theta

    def forward(self, x):
        return rotated(x, self.theta)


class GroupedQueryAttention(nn.Module):
    """As in Llama."""

    def __init__(self, dim, num_heads, num_kv_heads=None, rope_theta=10000.0, *, causal=True):
        super().__init__()
        num_kv_heads = num_kv_heads or num_heads
        if dim % num_heads or num_heads % num_kv_heads or dim // num_heads % 2:
            raise ValueError("heads that do not divide")
        self.head, self.groups = dim // num_heads, num_heads // num_kv_heads
        self.theta, self.causal = rope_theta, causal
        keys = num_kv_heads * self.head
        self.q_proj, self.k_proj = nn.Linear(dim, dim, bias=False), nn.Linear(dim, keys, bias=False)
        self.v_proj, self.o_proj = nn.Linear(dim, keys, bias=False), nn.Linear(dim, dim, bias=False)

    def forward(self, x):
        q, k, v = (project(x).unflatten(2, (-1, self.head)).transpose(1, 2)
                   for project in (self.q_proj, self.k_proj, self.v_proj))
        k, v = (part.repeat_interleave(self.groups, 1) for part in (rotated(k, self.theta), v))
        y = nn.functional.scaled_dot_product_attention(rotated(q, self.theta), k, v, is_causal=self.causal)
        return self.o_proj(y.transpose(1, 2).flatten(2))


class SwiGLU(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.gate_proj, self.up_proj = nn.Linear(dim, hidden, bias=False), nn.Linear(dim, hidden, bias=False)
        self.down_proj = nn.Linear(hidden, dim, bias=False)

    def forward(self, x):
        return self.down_proj(nn.functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Residual(nn.Sequential):
    def forward(self, x):
        return x + super().forward(x)


def causal_mask(x, batch_first):
    length = x.shape[1 if batch_first else 0]
    return nn.Transformer.generate_square_subsequent_mask(length)


MODULES = {"MultiheadAttention": Attention, "TransformerEncoderLayer": Encoder,
           "TransformerDecoderLayer": Decoder, "Transformer": Transformer, "Residual": Residual, "RNN": Rnn,
           "LSTM": Lstm, "GRU": Gru, "EmbeddingBag": EmbeddingBag, "RotaryEmbedding": RotaryEmbedding,
           "GroupedQueryAttention": GroupedQueryAttention, "SwiGLU": SwiGLU}
RECURRENT = ["RNN", "LSTM", "GRU"]
CONTAINERS = ["Sequential", "Residual"]


def module(layer):
    """The module that a layer's description stands for."""
    if layer["type"] in CONTAINERS:
        return MODULES.get(layer["type"], nn.Sequential)(*map(module, layer["positional"]))
    kind = MODULES.get(layer["type"]) or getattr(nn, layer["type"])
    layer = {**layer, "positional": [tuple(value) if isinstance(value, list) else value for value in layer["positional"]],
             "named": {name: tuple(value) if isinstance(value, list) else value
                       for name, value in layer["named"].items()}}
    if not all(name in parameters(layer["type"]) or name == "causal" for name in layer["named"]):
        raise TypeError("an unknown argument")
    return kind(*layer["positional"], **layer["named"])


def parameters(kind):
    """PyTorch's arguments by name, in its order."""
    of = nn.RNNBase if kind in RECURRENT else getattr(nn, kind, None) or MODULES[kind]
    found = dict(list(inspect.signature(of.__init__).parameters.items())[1:])
    if kind not in RECURRENT:
        return found
    names = ["input_size", "hidden_size", "num_layers", *(["nonlinearity"] if kind == "RNN" else []), "bias",
             "batch_first", "dropout", "bidirectional", *(["proj_size"] if kind == "LSTM" else []), "device", "dtype"]
    return {name: found.get(name, found["bias"]) for name in names}


def constructor(layer):
    """The layer in Lua."""
    inside = ", ".join(constructor(part) if isinstance(part, dict) else values.lua(part)
                       for part in layer["positional"])
    named = ", ".join(values.pair(*item) for item in layer["named"].items())
    return "nn.%s{%s}" % (layer["type"], ", ".join(filter(None, [inside, named])))


# Random arguments. Each function gives the arguments by name and the inputs.

def sizes(chance, dims, low, high):
    return [chance.randint(low, high) for _ in range(dims)]


def per_dim(chance, dims, choices):
    """One number, or one for each spatial dim."""
    if chance.random() < 0.5:
        return chance.choice(choices)
    return [chance.choice(choices) for _ in range(dims)]


def linear(chance):
    width, out = chance.randint(1, 40), chance.randint(1, 20)
    lead = sizes(chance, chance.randint(0, 3), 1, 6)
    return {"in_features": width, "out_features": out, "bias": chance.choice([True, False])}, [
        tensor([*lead, chance.wrong(width, width + 1)], 1)]


def convolution(dims):
    def draw(chance):
        groups = chance.choice([1, 1, 2, 3])
        inward, out = groups * chance.randint(1, 3), groups * chance.randint(1, 3)
        args = {"in_channels": inward, "out_channels": chance.wrong(out, out + 1),
                "kernel_size": per_dim(chance, dims, [1, 2, 3, 4]),
                "stride": per_dim(chance, dims, [1, 1, 2, 3]),
                "padding": chance.choice(["same", "valid", per_dim(chance, dims, [0, 1, 2]),
                                          per_dim(chance, dims, [0, 1, 2])]),
                "dilation": per_dim(chance, dims, [1, 1, 2]), "groups": groups,
                "bias": chance.choice([True, False]),
                "padding_mode": chance.choice(["zeros", "zeros", "reflect", "replicate", "circular"])}
        shape = [chance.randint(1, 3), inward, *sizes(chance, dims, 3, 10)]
        return args, [tensor(chance.wrong(shape, shape[1:]), 1)]
    return draw


def transposed(dims):
    def draw(chance):
        groups = chance.choice([1, 1, 2])
        inward, out = groups * chance.randint(1, 3), groups * chance.randint(1, 3)
        args = {"in_channels": inward, "out_channels": out, "kernel_size": per_dim(chance, dims, [1, 2, 3, 4]),
                "stride": per_dim(chance, dims, [1, 2, 3]), "padding": per_dim(chance, dims, [0, 1, 2]),
                "output_padding": per_dim(chance, dims, [0, 0, 1]), "groups": groups,
                "bias": chance.choice([True, False]), "dilation": per_dim(chance, dims, [1, 1, 2])}
        return args, [tensor([chance.randint(1, 3), inward, *sizes(chance, dims, 2, 6)], 1)]
    return draw


def embedding(chance):
    rows, width = chance.randint(2, 30), chance.randint(1, 9)
    args = {"num_embeddings": rows, "embedding_dim": width,
            "padding_idx": chance.choice([None, 0, rows - 1, -1]),
            "max_norm": chance.choice([None, None, 0.7, 2.0]), "norm_type": chance.choice([2.0, 1.0]),
            "scale_grad_by_freq": chance.choice([True, False])}
    shape = sizes(chance, chance.randint(1, 3), 1, 6)
    return args, [tensor(shape, 1, 0, rows, "int64")]


def layer_norm(chance):
    shape = sizes(chance, chance.randint(1, 2), 1, 7)
    args = {"normalized_shape": shape[0] if len(shape) == 1 and chance.random() < 0.5 else shape,
            "eps": chance.choice([1e-5, 1e-3]), "elementwise_affine": chance.choice([True, False]),
            "bias": chance.choice([True, False])}
    return args, [tensor([*sizes(chance, chance.randint(0, 2), 1, 5), *chance.wrong(shape, [*shape, 2])], 1)]


def rms_norm(chance):
    args, inputs = layer_norm(chance)
    del args["bias"]
    return {**args, "eps": chance.choice([None, 1e-3])}, inputs


def channel_norm(*dims):
    def draw(chance):
        features = chance.randint(1, 6)
        args = {"num_features": features, "eps": chance.choice([1e-5, 1e-2]),
                "momentum": chance.choice([0.1, 0.5, 0.0, 1.0]), "affine": chance.choice([True, False]),
                "track_running_stats": chance.choice([True, True, False])}
        wrong = chance.wrong(features, features + 1)
        return args, [tensor([chance.randint(1, 4), wrong, *sizes(chance, chance.choice(dims), 1, 5)], 1)]
    return draw


def group_norm(chance):
    groups = chance.randint(1, 3)
    channels = groups * chance.randint(1, 3)
    args = {"num_groups": groups, "num_channels": chance.wrong(channels, channels + 1),
            "eps": chance.choice([1e-5, 1e-2]), "affine": chance.choice([True, False])}
    return args, [tensor([chance.randint(1, 3), channels, *sizes(chance, chance.randint(0, 3), 1, 4)], 1)]


def anything(chance):
    return tensor(sizes(chance, chance.randint(1, 4), 1, 6), 1, -3, 3)


def activation(**options):
    def draw(chance):
        return {name: chance.choice(choices) for name, choices in options.items()}, [anything(chance)]
    return draw


def softmax(chance):
    x = anything(chance)
    dims = len(x["shape"])
    return {"dim": chance.choice([None, *range(-dims, dims), dims])}, [x]


def glu(chance):
    shape = sizes(chance, chance.randint(2, 4), 1, 6)
    dim = chance.randint(1, len(shape) - 1)
    shape[dim] = chance.wrong(2 * shape[dim], 2 * shape[dim] + 1)
    return {"dim": chance.choice([dim, dim - len(shape)])}, [tensor(shape, 1, -3, 3)]


def threshold(chance):
    # In place, PyTorch's gradient is wrong for a value above the threshold.
    at = chance.choice([-0.5, 0.1, 1.0])
    return {"threshold": at, "value": at - chance.choice([0.0, 0.5, 20.0]),
            "inplace": chance.choice([True, False])}, [anything(chance)]


def prelu(chance):
    x = anything(chance)
    channels = x["shape"][1] if len(x["shape"]) > 1 else 1
    return {"num_parameters": chance.choice([1, chance.wrong(channels, channels + 1)]),
            "init": chance.choice([0.25, 0.0, -0.5])}, [x]


def pooled(chance, dims):
    return tensor([*sizes(chance, chance.randint(1, 2), 1, 3), *sizes(chance, dims, 2, 8 if dims < 3 else 5)], 1)


def pool(dims, **more):
    """`more`: arguments by the values that they may have."""
    def draw(chance):
        args = {"kernel_size": per_dim(chance, dims, [1, 2, 3]),
                "stride": chance.choice([None, per_dim(chance, dims, [1, 2, 3])]),
                "padding": per_dim(chance, dims, [0, 0, 1]), "ceil_mode": chance.choice([True, False]),
                **{name: chance.choice(choices) for name, choices in more.items()}}
        return args, [pooled(chance, dims)]
    return draw


def max_pool(dims):
    return pool(dims, dilation=[1, 1, 2, [1, 2, 1][:dims]])


def average_pool(dims):
    return pool(dims, count_include_pad=[True, False], **({"divisor_override": [None, 3]} if dims > 1 else {}))


def adaptive_pool(dims):
    def draw(chance):
        return {"output_size": per_dim(chance, dims, [1, 2, 3, 5])}, [pooled(chance, dims)]
    return draw


def padding(dims, least, value=False):
    def draw(chance):
        most = chance.wrong(2, 4)
        args = {"padding": chance.choice([chance.randint(least, most), sizes(chance, 2 * dims, least, most)])}
        if value:
            args["value"] = chance.choice([0.0, -1.5, 3.0])
        return args, [tensor([*sizes(chance, 2, 1, 3), *sizes(chance, dims, 3, 5)], 1)]
    return draw


MODES = {"linear": 1, "bilinear": 2, "bicubic": 2, "trilinear": 3}


def upsample(chance):
    mode = chance.choice(["nearest", "nearest-exact", "area", *MODES])
    dims = MODES.get(mode) or chance.randint(1, 3)
    args = {"mode": chance.wrong(mode, "bilinear")}
    if chance.random() < 0.5:
        args["size"] = per_dim(chance, dims, [1, 2, 3, 5, 8])
    else:
        args["scale_factor"] = per_dim(chance, dims, [0.5, 1.0, 1.7, 2.0, 3.0])
        args["recompute_scale_factor"] = chance.choice([None, True, False])
    if mode in MODES:
        args["align_corners"] = chance.choice([None, True, False])
    return args, [tensor([*sizes(chance, 2, 1, 3), *sizes(chance, dims, 2, 5)], 1)]


def shuffle(up):
    def draw(chance):
        by = chance.randint(1, 3)
        many, one = (by * by, 1) if up else (1, by)
        shape = [chance.randint(1, 3), chance.wrong(many * chance.randint(1, 2), 5),
                 *[one * n for n in sizes(chance, 2, 1, 3)]]
        return {"upscale_factor" if up else "downscale_factor": by}, [tensor(shape, 1)]
    return draw


def windows(chance):
    return {"kernel_size": per_dim(chance, 2, [1, 2, 3]), "dilation": per_dim(chance, 2, [1, 1, 2]),
            "padding": per_dim(chance, 2, [0, 0, 1]), "stride": per_dim(chance, 2, [1, 2])}


def unfold(chance):
    return windows(chance), [tensor([*sizes(chance, 2, 1, 3), *sizes(chance, 2, 3, 7)], 1)]


def fold(chance):
    args, image = windows(chance), sizes(chance, 2, 5, 7)
    columns = nn.Unfold(**args)(torch.zeros(1, chance.randint(1, 3), *image)).shape
    return {"output_size": image, **args}, [
        tensor([chance.randint(1, 3), columns[1], chance.wrong(columns[2], columns[2] + 1)], 1)]


def two(chance, first, second):
    return [tensor(first, 1), tensor(second, 2)]


def bilinear(chance):
    a, b = sizes(chance, 2, 1, 6)
    lead = sizes(chance, chance.randint(1, 2), 1, 5)
    return {"in1_features": a, "in2_features": b, "out_features": chance.randint(1, 5),
            "bias": chance.choice([True, False])}, two(chance, [*lead, a], [*lead, chance.wrong(b, b + 1)])


def distance(**options):
    def draw(chance):
        shape = sizes(chance, chance.randint(2, 4), 1, 5)
        other = [chance.choice([n, n, 1]) for n in shape]
        return {name: chance.choice(choices) for name, choices in options.items()}, two(chance, shape, other)
    return draw


def embedding_bag(chance):
    args, _ = embedding(chance)
    mode = chance.choice(["sum", "mean", "max"])
    if mode == "max":
        del args["scale_grad_by_freq"]
    shape = sizes(chance, 2, 1, 6)
    inputs = [tensor(shape, 1, 0, args["num_embeddings"], "int64")]
    if mode == "sum" and chance.random() < 0.5:
        inputs.append(tensor(shape, 2))
    return {**args, "mode": mode}, inputs


def recurrent(kind):
    def draw(chance):
        features, hidden = sizes(chance, 2, 1, 6)
        args = {"input_size": features, "hidden_size": hidden, "num_layers": chance.randint(1, 3),
                "bias": chance.choice([True, False]), "batch_first": chance.choice([True, False]),
                "dropout": chance.choice([0.0, 0.0, 0.4]), "bidirectional": chance.choice([True, False])}
        if kind == "RNN":
            args["nonlinearity"] = chance.choice(["tanh", "relu"])
        if kind == "LSTM":
            args["proj_size"] = chance.choice([0, 0, chance.wrong(max(0, hidden - 1), hidden)])
        batch, length = sizes(chance, 2, 1, 5)
        inputs = [sequence(chance, chance.wrong(features, features + 1), args["batch_first"], batch, length)]
        if chance.random() < 0.3:
            cells = args["num_layers"] * (2 if args["bidirectional"] else 1)
            inputs.append(tensor([cells, batch, args.get("proj_size") or hidden], 2))
            if kind == "LSTM":
                inputs.append(tensor([cells, batch, hidden], 3))
        return args, inputs
    return draw


def rotary(chance):
    width = chance.wrong(2 * chance.randint(1, 4), 3)
    return {"dim": width, "theta": chance.choice([10000.0, 50.0])}, [
        tensor([*sizes(chance, chance.randint(1, 2), 1, 3), chance.randint(1, 6), width], 1)]


def grouped_queries(chance):
    keys = chance.randint(1, 2)
    heads = keys * chance.randint(1, 3)
    width = heads * 2 * chance.randint(1, 3)
    return {"dim": width, "num_heads": heads, "num_kv_heads": chance.wrong(keys, heads + 1),
            "rope_theta": chance.choice([10000.0, 50.0]), "causal": chance.choice([True, False])}, [
                tensor([*sizes(chance, 2, 1, 5), width], 1)]


def swiglu(chance):
    width = chance.randint(1, 8)
    return {"dim": width, "hidden": chance.randint(1, 12)}, [
        tensor([*sizes(chance, chance.randint(1, 2), 1, 5), chance.wrong(width, width + 1)], 1)]


def flatten(chance):
    x = anything(chance)
    dims = len(x["shape"])
    return {"start_dim": chance.randint(-dims, dims - 1), "end_dim": chance.randint(-dims, dims - 1)}, [x]


def unflatten(chance):
    first, second = sizes(chance, 2, 1, 4)
    shape = [*sizes(chance, chance.randint(1, 2), 1, 4), first * second]
    wanted = chance.choice([[first, second], [first, -1], [-1, second], [first, 1, second]])
    dim = chance.choice([-1, len(shape) - 1])
    return {"dim": dim, "unflattened_size": chance.wrong(wanted, [first + 1, second + 1])}, [tensor(shape, 1)]


def dropout(chance):
    return {"p": chance.choice([0.0, 0.1, 0.5, 0.9, 1.0]), "inplace": chance.choice([True, False])}, [anything(chance)]


def channel_dropout(dims):
    def draw(chance):
        args, _ = dropout(chance)
        return args, [tensor([*sizes(chance, 2, 1, 6), *sizes(chance, dims, 1, 4)], 1)]
    return draw


def sequence(chance, width, batch_first, batch, length):
    return tensor([batch, length, width] if batch_first else [length, batch, width], 1)


MASK = 5


def mask(chance, *shape):
    """Of numbers that are added to scores: a bool one could hide all keys of a query."""
    return tensor(shape, MASK, -3, 3)


def attention(chance):
    heads = chance.choice([1, 2, 3])
    width, batch_first = heads * chance.choice([1, 2, 4]), chance.choice([True, False])
    batch, length, keys = sizes(chance, 3, 1, 5)
    several = chance.random() < 0.5
    key, value = (chance.choice([None, 3, 5]), chance.choice([None, 4])) if several else (None, None)
    args = {"embed_dim": width, "num_heads": heads, "bias": chance.choice([True, False]),
            "add_bias_kv": chance.random() < 0.2, "add_zero_attn": chance.random() < 0.2,
            "kdim": key, "vdim": value, "batch_first": batch_first}
    if not several:
        args["causal"] = chance.choice([True, False])
    widths = [(width, length), (key or width, keys), (value or width, keys)] if several else [(width, length)]
    inputs = [sequence(chance, w, batch_first, batch, l) for w, l in widths]
    if chance.random() < 0.3 and not args.get("causal"):
        inputs.append(mask(chance, batch, keys if several else length))
    return args, inputs


def transformer(memory):
    def draw(chance):
        heads = chance.choice([1, 2, 3])
        width, batch_first = heads * chance.choice([4, 6]), chance.choice([True, False])
        args = {"d_model": width, "nhead": chance.wrong(heads, 5),
                "dim_feedforward": chance.choice([3, 8]),
                "dropout": 0.0 if batch_first else chance.choice([0.0, 0.1, 0.5]),
                "activation": chance.choice(["relu", "gelu"]),
                "layer_norm_eps": chance.choice([1e-5, 1e-3]), "batch_first": batch_first,
                "norm_first": chance.choice([True, False]), "bias": chance.choice([True, False]),
                "causal": chance.choice([True, False])}
        batch, length, other = sizes(chance, 3, 1, 4)
        inputs = [sequence(chance, width, batch_first, batch, length)]
        if memory and chance.random() < 0.5:
            inputs.append(sequence(chance, width, batch_first, batch, other))
            inputs[-1]["k"] = 2
        if not memory and chance.random() < 0.4:
            inputs.append(mask(chance, batch, length))
        return args, inputs
    return draw


def whole_transformer(chance):
    args, (source, *_) = transformer(False)(chance)
    args.update(num_encoder_layers=chance.randint(1, 2), num_decoder_layers=chance.randint(1, 2))
    first = args["batch_first"]
    (batch, long), short = source["shape"][:2] if first else source["shape"][1::-1], chance.randint(1, 4)
    masks = [mask(chance, *shape) for shape in [(batch, long), (batch, short), (batch, long), (long, long),
                                                (short, short), (short, long)]]
    taken = chance.choice([0, 0, 1, 3, 4, 6])
    args["causal"] = args["causal"] and taken < 5
    return args, [source, sequence(chance, args["d_model"], first, batch, short), *masks[:taken]]


def container(kind):
    def draw(chance):
        width = chance.randint(2, 8)
        parts, at = [], width
        for _ in range(chance.randint(1, 3)):
            out = width if kind == "Residual" else chance.randint(1, 8)
            parts += [described_layer(chance, "Linear", {"in_features": at, "out_features": out}),
                      described_layer(chance, chance.choice(["ReLU", "GELU", "Tanh"]), {})]
            at = out
        return parts, [tensor([chance.randint(1, 4), width], 1)]
    return draw


ALPHAS = [1.0, 0.3, 2.5]
GENERATORS = {
    "Linear": linear, "Conv1d": convolution(1), "Conv2d": convolution(2),
    "Conv3d": convolution(3), "ConvTranspose1d": transposed(1), "ConvTranspose2d": transposed(2),
    "ConvTranspose3d": transposed(3), "Embedding": embedding, "LayerNorm": layer_norm,
    "RMSNorm": rms_norm, "BatchNorm1d": channel_norm(0, 1),
    "BatchNorm2d": channel_norm(2), "BatchNorm3d": channel_norm(3), "InstanceNorm1d": channel_norm(1),
    "InstanceNorm2d": channel_norm(2), "InstanceNorm3d": channel_norm(3), "GroupNorm": group_norm,
    "ReLU": activation(inplace=[True, False]), "GELU": activation(approximate=["none", "tanh"]),
    "SiLU": activation(inplace=[True, False]), "Tanh": activation(), "Sigmoid": activation(),
    "Softmax": softmax,
    "LeakyReLU": activation(negative_slope=[0.01, 0.3, 1.0, 0.0, -0.5], inplace=[True, False]),
    "ELU": activation(alpha=ALPHAS, inplace=[True, False]), "SELU": activation(inplace=[True, False]),
    "CELU": activation(alpha=ALPHAS, inplace=[True, False]),
    "Softplus": activation(beta=[1.0, 0.5, 3.0], threshold=[20.0, 1.0]), "Softsign": activation(),
    "Hardswish": activation(inplace=[True, False]), "Hardsigmoid": activation(inplace=[True, False]),
    "Hardtanh": activation(min_val=[-1.0, -0.3, 2.0], max_val=[1.0, 0.5], inplace=[True, False]),
    "ReLU6": activation(inplace=[True, False]), "Mish": activation(inplace=[True, False]),
    "LogSoftmax": softmax, "LogSigmoid": activation(), "Tanhshrink": activation(),
    "Softshrink": activation(lambd=[0.5, 0.0, 2.0]), "Hardshrink": activation(lambd=[0.5, 0.0, -1.0]),
    "Threshold": threshold, "GLU": glu, "PReLU": prelu,
    "Dropout": dropout, "AlphaDropout": dropout,
    **{"Dropout%dd" % n: channel_dropout(n) for n in (1, 2, 3)},
    **{"MaxPool%dd" % n: max_pool(n) for n in (1, 2, 3)}, **{"AvgPool%dd" % n: average_pool(n) for n in (1, 2, 3)},
    **{"AdaptiveAvgPool%dd" % n: adaptive_pool(n) for n in (1, 2, 3)},
    **{"AdaptiveMaxPool%dd" % n: adaptive_pool(n) for n in (1, 2, 3)},
    **{"ZeroPad%dd" % n: padding(n, -1) for n in (1, 2, 3)},
    **{"ConstantPad%dd" % n: padding(n, -1, value=True) for n in (1, 2, 3)},
    **{"%sPad%dd" % (kind, n): padding(n, 0) for kind in ("Reflection", "Replication", "Circular") for n in (1, 2, 3)},
    "Upsample": upsample, "PixelShuffle": shuffle(True), "PixelUnshuffle": shuffle(False), "Unfold": unfold,
    "Fold": fold, "Bilinear": bilinear, "CosineSimilarity": distance(dim=[-1, 0, 1], eps=[1e-8, 1e-3]),
    "PairwiseDistance": distance(p=[2.0, 1.0], keepdim=[True, False]), "EmbeddingBag": embedding_bag,
    **{kind: recurrent(kind) for kind in RECURRENT}, "RotaryEmbedding": rotary,
    "GroupedQueryAttention": grouped_queries, "SwiGLU": swiglu, "Identity": activation(), "Flatten": flatten,
    "Unflatten": unflatten, "Sequential": container("Sequential"), "Residual": container("Residual"),
    "MultiheadAttention": attention, "TransformerEncoderLayer": transformer(False),
    "TransformerDecoderLayer": transformer(True), "Transformer": whole_transformer,
}


def described_layer(chance, kind, args):
    """Some arguments by position, as many as stand first in PyTorch's order, the others by name."""
    args = {name: value for name, value in args.items() if value is not None}
    positional = []
    for name, parameter in parameters(kind).items():
        if name not in args or parameter.kind == parameter.KEYWORD_ONLY or chance.random() < 0.3:
            break
        positional.append(args.pop(name))
    return {"type": kind, "positional": positional, "named": args}


# Arguments that the inputs' shapes were made for, or that say what is compared.
KEPT = ["causal", "batch_first", "dropout", "kdim", "vdim", "num_layers", "bidirectional", "proj_size", "size",
        "scale_factor", "mode", "align_corners", "dilation", "padding", "stride", "num_kv_heads", "dim", "d_model",
        "nhead", "num_encoder_layers", "num_decoder_layers"]


def arguments(chance, kind):
    """A layer's arguments by name, of which some have their defaults, and its inputs."""
    args, inputs = GENERATORS[kind](chance)
    required = [name for name, p in parameters(kind).items() if p.default is p.empty]
    kept = {name: value for name, value in args.items()
            if name in required or name in KEPT or chance.random() < 0.8}
    return kept, inputs


def generate(chance):
    kind = chance.choice(list(GENERATORS))
    if kind in CONTAINERS:
        parts, inputs = GENERATORS[kind](chance)
        layer = {"type": kind, "positional": parts, "named": {}}
    else:
        kept, inputs = arguments(chance, kind)
        layer = described_layer(chance, kind, kept)
    for k, x in enumerate(inputs):
        x["k"] = k + 1
    return {"layer": layer, "inputs": inputs, "seed": chance.choice([SEED, chance.randint(0, 1 << 40)])}


# The case in Strata.

RUN = """
function driver.layer(spec)
  local inputs, shown, slots = spec.inputs, nil, {}
  for i, x in ipairs(inputs) do slots[i] = x.dtype == "float32" and x.shape or {} end
  local job = strata.job {
    layers = { driver.Probe(slots), spec.layer(), spec.first and function(y) return y end or nil },
    loss = function(y)
      shown = y
      return (y * driver.slopes(y)):sum(), 1
    end,
    data = function() return inputs, F.zeros{1} end,
    batch = { micro_batches = 1, micro_batch_size = inputs[1].shape[1] }, seed = spec.seed,
    optimizer = { "sgd", lr = 0, momentum = 0.5 }, device = driver.device, threads = 1,
    save = { dir = "saves/" .. spec.number },
  }
  local engine = job:start { transport = "threads" }
  return driver.closing(engine, function(number)
    engine:train_batch()
    show(number, "output", shown)
    engine:save()
    engine:eval_batch(function() return inputs, F.zeros{1} end)
    show(number, "evaluated", shown)
  end)
end
"""


def texts(case, number):
    fields = {"number": number, "seed": case["seed"], "inputs": case["inputs"],
              "first": case["layer"]["type"] in RECURRENT}
    yield number, "function() return driver.layer { layer = function() return %s end, %s } end" % (
        constructor(case["layer"]), values.call([], fields))


# The case in PyTorch.

def first(output):
    """A recurrent layer's sequence, without its states."""
    return output[0] if isinstance(output, tuple) else output


def expected(case):
    torch.manual_seed((case["seed"] + 1) % (1 << 63))
    try:
        layer = module(case["layer"])
        inputs = [values.make(x) for x in case["inputs"]]
        for x in inputs:
            x.requires_grad_(x.is_floating_point())
        seed_forward(case["seed"], 0, 1)
        y = first(layer(*[x.clone() if x.is_floating_point() else x for x in inputs]))
        (y * values.slopes(y)).sum().backward()
        layer.eval()
        after = {"saved.1." + name: x for name, x in layer.state_dict().items()}
        found = {"output": y, **{name: x.clone() for name, x in after.items()}}
        with torch.no_grad():
            found["evaluated"] = first(layer(*inputs))
    except (RuntimeError, ValueError, TypeError, AssertionError, IndexError, NotImplementedError,
            ZeroDivisionError) as error:
        return "%s: %s" % (type(error).__name__, error)
    for i, x in enumerate(inputs):
        if x.is_floating_point():
            found["saved.0.input%d" % i] = torch.zeros_like(x)
            found["saved.0.input%d#momentum_buffer" % i] = x.grad
    for name, parameter in layer.named_parameters():
        grad = parameter.grad if parameter.grad is not None else torch.zeros_like(parameter)
        found["saved.1.%s#momentum_buffer" % name] = grad
    return {name: described(x) for name, x in found.items()}


# What PyTorch refuses and Strata takes.
ACCEPTED = [(re.compile(pattern), reason) for pattern, reason in [
    ("In-place leakyReLu backward", "inplace=true is a wish, which is not granted for such a slope"),
]]

# What Strata refuses and PyTorch takes.
REASONS = [(re.compile(pattern), reason) for pattern, reason in [
    (r"expects \(batch, ", "the first dim of what a job's layers take is the batch"),
    (r"nothing is left after padding", "an output without elements"),
]]


def draws(layer):
    """Whether its forward does, which gives other numbers on another device."""
    given = {**dict(zip(parameters(layer["type"]), layer["positional"])), **layer["named"]}
    return "Dropout" in layer["type"] or given.get("dropout", 0) > 0


def verdict(case, outcomes):
    judged = judge(expected(case), outcomes[0], REASONS, ACCEPTED)
    drawn = values.DEVICE != "cpu" and case["layer"]["type"] not in CONTAINERS and draws(case["layer"])
    return Verdict("draws") if drawn and judged.what == "wrong" else judged
