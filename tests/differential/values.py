"""Values that Strata and PyTorch compute by the same formula, and values as Lua's text."""

import math
import os

from pytorch import torch

DEVICE = os.environ.get("DEVICE", "cpu")  # where Strata computes; PyTorch does on the CPU
WHOLE = 65521  # a prime: elements of a tensor repeat after so many


def tensor(shape, k, low=-1, high=1, dtype="float32", **more):
    """The description of a tensor: driver.lua's tensor(), or make(), makes it."""
    return {"tensor": True, "shape": list(shape), "k": k, "low": low, "high": high, "dtype": dtype, **more}


def is_tensor(value):
    return isinstance(value, dict) and "tensor" in value


def make(spec):
    """The tensor that a description stands for."""
    drawn = (torch.arange(math.prod(spec["shape"])) * 7919 + spec["k"] * 104729) % WHOLE
    low, high, dtype = spec["low"], spec["high"], spec["dtype"]
    if dtype == "int64":
        x = drawn % (high - low) + low
    elif dtype == "bool":
        x = drawn % 2 == 0
    else:
        x = (drawn.double() / WHOLE * (high - low) + low).to(getattr(torch, dtype))
    x = x.reshape(spec["shape"])
    if spec.get("permute"):
        x = x.permute(spec["permute"])
    return x.requires_grad_() if spec.get("grad") else x


def slopes(y):
    """Weights for the sum of an output, as driver.lua's slopes()."""
    return make(tensor(y.shape, 3, dtype=str(y.dtype).split(".")[1]))


def lua(value):
    """A value as an expression of Lua."""
    if is_tensor(value):
        fields = {name: part for name, part in value.items() if name != "tensor"}
        return "T" + lua(fields)
    if value is None:
        return "nil"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return {"inf": "math.huge", "-inf": "-math.huge"}.get(repr(value), repr(value))
    if isinstance(value, str):
        return '"%s"' % value
    if isinstance(value, dict):
        return "{%s}" % ", ".join(pair(name, part) for name, part in value.items())
    if isinstance(value, (list, tuple)):
        return "{%s}" % ", ".join(map(lua, value))
    return str(value)


def pair(name, value):
    return "%s=%s" % (name, lua(value))


def call(positional, named):
    """The inside of a call with braces: 3, 8, kernel_size=3."""
    return ", ".join([*map(lua, positional), *(pair(*item) for item in named.items())])
