"""Every layer with random arguments against the module of PyTorch: output, gradients of inputs and
parameters, initial values, buffers, and the output of evaluation.

A case is one job of a probe (layer 0, whose parameters are added to the inputs), the layer and a
weighted sum as its loss. A step with lr = 0 leaves the gradients in the momentum, which a save has.
"""

import inspect
import math
import re

import values
from compare import described, judge
from pytorch import seed_forward, torch
from values import tensor

nn = torch.nn
SEED = 1234


# Layers as modules of PyTorch, where they take and give something else.

class Attention(nn.MultiheadAttention):
    def __init__(self, *args, causal=False, **named):
        super().__init__(*args, **named)
        self.causal = causal

    def forward(self, query, key=None, value=None):
        key, value = (query, query) if key is None else (key, value)
        mask = causal_mask(query, self.batch_first) if self.causal else None
        # With the hint is_causal PyTorch would hide the added key from all queries.
        return super().forward(query, key, value, need_weights=False, attn_mask=mask)[0]


class Encoder(nn.TransformerEncoderLayer):
    def __init__(self, *args, causal=False, **named):
        super().__init__(*args, **named)
        self.causal = causal

    def forward(self, x):
        mask = causal_mask(x, self.self_attn.batch_first) if self.causal else None
        return super().forward(x, src_mask=mask, is_causal=self.causal)


class Decoder(nn.TransformerDecoderLayer):
    def __init__(self, *args, causal=False, **named):
        super().__init__(*args, **named)
        self.causal = causal

    def forward(self, x, memory=None):
        own = memory is None
        mask = causal_mask(x, self.self_attn.batch_first) if self.causal else None
        return super().forward(x, x if own else memory, tgt_mask=mask, tgt_is_causal=self.causal,
                               memory_mask=mask if own else None,
                               memory_is_causal=own and self.causal)


class Residual(nn.Sequential):
    def forward(self, x):
        return x + super().forward(x)


def causal_mask(x, batch_first):
    length = x.shape[1 if batch_first else 0]
    return nn.Transformer.generate_square_subsequent_mask(length)


MODULES = {"MultiheadAttention": Attention, "TransformerEncoderLayer": Encoder,
           "TransformerDecoderLayer": Decoder, "Residual": Residual}
CONTAINERS = ["Sequential", "Residual"]


def module(layer):
    """The module that a layer's description stands for."""
    if layer["type"] in CONTAINERS:
        return MODULES.get(layer["type"], nn.Sequential)(*map(module, layer["positional"]))
    kind = MODULES.get(layer["type"]) or getattr(nn, layer["type"])
    if not all(name in parameters(layer["type"]) or name == "causal" for name in layer["named"]):
        raise TypeError("an unknown argument")
    return kind(*layer["positional"], **layer["named"])


def parameters(kind):
    """The names of PyTorch's arguments, in its order."""
    return list(inspect.signature(getattr(nn, kind).__init__).parameters)[1:]


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


def transposed(chance):
    groups = chance.choice([1, 1, 2])
    inward, out = groups * chance.randint(1, 3), groups * chance.randint(1, 3)
    args = {"in_channels": inward, "out_channels": out, "kernel_size": per_dim(chance, 2, [1, 2, 3, 4]),
            "stride": per_dim(chance, 2, [1, 2, 3]), "padding": per_dim(chance, 2, [0, 1, 2]),
            "output_padding": per_dim(chance, 2, [0, 0, 1]), "groups": groups,
            "bias": chance.choice([True, False]), "dilation": per_dim(chance, 2, [1, 1, 2])}
    return args, [tensor([chance.randint(1, 3), inward, *sizes(chance, 2, 2, 6)], 1)]


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


def batch_norm(chance):
    features = chance.randint(1, 6)
    args = {"num_features": features, "eps": chance.choice([1e-5, 1e-2]),
            "momentum": chance.choice([0.1, 0.5, 0.0, 1.0]), "affine": chance.choice([True, False]),
            "track_running_stats": chance.choice([True, True, False])}
    shape = [chance.randint(1, 4), chance.wrong(features, features + 1), *sizes(chance, 2, 1, 5)]
    return args, [tensor(shape, 1)]


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


def pool(chance):
    kernel = per_dim(chance, 2, [1, 2, 3])
    shape = [*sizes(chance, chance.randint(1, 2), 1, 3), *sizes(chance, 2, 2, 8)]
    args = {"kernel_size": kernel, "stride": chance.choice([None, per_dim(chance, 2, [1, 2, 3])]),
            "padding": per_dim(chance, 2, [0, 0, 1]), "ceil_mode": chance.choice([True, False])}
    return args, [tensor(shape, 1)]


def max_pool(chance):
    args, inputs = pool(chance)
    return {**args, "dilation": per_dim(chance, 2, [1, 1, 2])}, inputs


def average_pool(chance):
    args, inputs = pool(chance)
    return {**args, "count_include_pad": chance.choice([True, False]),
            "divisor_override": chance.choice([None, 3])}, inputs


def adaptive_pool(chance):
    shape = [*sizes(chance, chance.randint(1, 2), 1, 3), *sizes(chance, 2, 2, 8)]
    return {"output_size": per_dim(chance, 2, [1, 2, 3, 5])}, [tensor(shape, 1)]


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
    return {"p": chance.choice([0.0, 0.1, 0.5, 0.9, 1.0]), "inplace": chance.choice([True, False])}, [
        anything(chance)]


def sequence(chance, width, batch_first, batch, length):
    return tensor([batch, length, width] if batch_first else [length, batch, width], 1)


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
    return args, [sequence(chance, w, batch_first, batch, l) for w, l in widths]


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
        return args, inputs
    return draw


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
    "ConvTranspose2d": transposed, "Embedding": embedding, "LayerNorm": layer_norm,
    "RMSNorm": rms_norm, "BatchNorm2d": batch_norm, "GroupNorm": group_norm,
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
    "Dropout": dropout, "MaxPool2d": max_pool, "AvgPool2d": average_pool,
    "AdaptiveAvgPool2d": adaptive_pool, "Identity": activation(), "Flatten": flatten,
    "Unflatten": unflatten, "Sequential": container("Sequential"), "Residual": container("Residual"),
    "MultiheadAttention": attention, "TransformerEncoderLayer": transformer(False),
    "TransformerDecoderLayer": transformer(True),
}


def described_layer(chance, kind, args):
    """Some arguments by position, as many as stand first in PyTorch's order, the others by name."""
    args = {name: value for name, value in args.items() if value is not None}
    positional = []
    for name in parameters(kind):
        if name not in args or chance.random() < 0.3:
            break
        positional.append(args.pop(name))
    return {"type": kind, "positional": positional, "named": args}


def generate(chance):
    kind = chance.choice(list(GENERATORS))
    args, inputs = GENERATORS[kind](chance)
    if kind in CONTAINERS:
        layer = {"type": kind, "positional": args, "named": {}}
    else:
        required = [name for name, p in inspect.signature(getattr(nn, kind).__init__).parameters.items()
                    if p.default is p.empty]
        kept = {name: value for name, value in args.items()
                if name in required or name in ("causal", "batch_first", "dropout", "kdim", "vdim")
                or chance.random() < 0.8}
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
    layers = { driver.Probe(slots), spec.layer() },
    loss = function(y)
      shown = y
      return (y * driver.slopes(y)):sum(), 1
    end,
    data = function() return inputs, F.zeros{1} end,
    batch = { micro_batches = 1, micro_batch_size = inputs[1].shape[1] }, seed = spec.seed,
    optimizer = { "sgd", lr = 0, momentum = 0.5 }, device = "cpu", threads = 1,
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
    fields = {"number": number, "seed": case["seed"], "inputs": case["inputs"]}
    yield number, "function() return driver.layer { layer = function() return %s end, %s } end" % (
        constructor(case["layer"]), values.call([], fields))


# The case in PyTorch.

def expected(case):
    torch.manual_seed((case["seed"] + 1) % (1 << 63))
    try:
        layer = module(case["layer"])
        inputs = [values.make(x) for x in case["inputs"]]
        for x in inputs:
            x.requires_grad_(x.is_floating_point())
        seed_forward(case["seed"], 0, 1)
        y = layer(*[x.clone() if x.is_floating_point() else x for x in inputs])
        (y * values.slopes(y)).sum().backward()
        layer.eval()
        after = {"saved.1." + name: x for name, x in layer.state_dict().items()}
        found = {"output": y, **{name: x.clone() for name, x in after.items()}}
        with torch.no_grad():
            found["evaluated"] = layer(*inputs)
    except (RuntimeError, ValueError, TypeError, AssertionError, IndexError, NotImplementedError) as error:
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


def verdict(case, outcomes):
    return judge(expected(case), outcomes[0], REASONS, ACCEPTED)
