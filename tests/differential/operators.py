"""The usual operators of tensors, as methods and as functions of F."""

import math

from functional_arguments import FLOATS, anything, given, like, sizes
from values import tensor

# Of one tensor: the range of its elements.
REAL = (-3, 3)
UNARY = {
    **dict.fromkeys(["abs", "neg", "exp", "expm1", "sin", "cos", "tan", "sinh", "cosh", "tanh", "atan", "asinh",
                     "erf", "erfc", "sigmoid", "square", "floor", "ceil", "round", "trunc", "frac", "sign", "relu",
                     "sinc", "logit", "positive", "exp2", "isnan", "isfinite", "isinf", "signbit", "deg2rad",
                     "rad2deg", "nan_to_num", "logical_not", "clone", "contiguous", "detach", "sgn"], REAL),
    **dict.fromkeys(["log", "log2", "log10", "log1p", "sqrt", "rsqrt", "reciprocal", "lgamma", "digamma"], (0.1, 4)),
    **dict.fromkeys(["asin", "acos", "atanh", "erfinv"], (-0.9, 0.9)),
    "acosh": (1.1, 4),
}
IN_PLACE = ["abs_", "neg_", "exp_", "sin_", "cos_", "tanh_", "sigmoid_", "square_", "floor_", "relu_", "sqrt_",
            "log_", "zero_", "reciprocal_", "trunc_", "erf_"]
BINARY = ["add", "sub", "mul", "div", "pow", "maximum", "minimum", "fmax", "fmin", "atan2", "remainder", "fmod",
          "hypot", "eq", "ne", "lt", "le", "gt", "ge", "copysign", "logaddexp", "xlogy", "true_divide",
          "floor_divide", "rsub", "subtract", "multiply", "divide", "add_", "sub_", "mul_", "div_", "logical_and",
          "logical_or", "logical_xor", "ldexp", "float_power", "dist"]
REDUCED = ["sum", "mean", "prod", "amax", "amin", "var", "std", "logsumexp", "norm", "all", "any", "cumsum",
           "cumprod", "argmax", "argmin", "median", "max", "min", "nansum", "count_nonzero", "logcumsumexp",
           "cummax", "cummin", "nanmean", "mode", "argsort", "sort"]


def unary(chance):
    name = chance.choice(list(UNARY) + IN_PLACE)
    low, high = UNARY.get(name.rstrip("_"), (0.1, 3))
    return name, [anything(chance, low, high)], {}


def binary(chance):
    x = anything(chance, 0.2, 3)
    name = chance.choice(BINARY)
    other = chance.choice([like(x, 2, 0.2, 3), chance.choice([2, 3, 0.5]), given(x["shape"][-1:], 2, 0.2, 3, x["dtype"])])
    named = {}
    if name in ("add", "sub", "add_", "sub_", "subtract", "rsub") and chance.random() < 0.3:
        named["alpha"] = chance.choice([2, 0.5])
    if name in ("div", "div_", "divide") and chance.random() < 0.3:
        named["rounding_mode"] = chance.choice(["floor", "trunc"])
    return name, [x, other], named


def whole(chance):
    """Whole numbers stay whole, or become real, as PyTorch does it."""
    shape = sizes(chance, chance.randint(1, 3))
    x = tensor(shape, 1, -5, 6, "int64")
    other = chance.choice([tensor(shape, 2, 1, 5, "int64"), 2, 0.5, tensor(shape, 2, 0.5, 2)])
    return chance.choice(["add", "sub", "mul", "div", "pow", "remainder", "floor_divide", "eq", "lt", "maximum",
                          "bitwise_and", "bitwise_or", "bitwise_xor", "fmod", "sum", "prod"]), [x, other], {}


def reduction(chance):
    x = given(sizes(chance, chance.randint(1, 4)), 1, 0.2, 2, chance.choice(FLOATS))
    dims = len(x["shape"])
    name = chance.choice(REDUCED)
    if chance.random() < 0.3 and name not in ("cumsum", "cumprod", "logsumexp", "logcumsumexp", "cummax", "cummin"):
        return name, [x], {}
    named = {"dim": chance.randint(-dims, dims - 1)}
    if name in ("sum", "mean", "amax", "amin", "logsumexp") and chance.random() < 0.3:
        named["dim"] = chance.sample(range(dims), chance.randint(1, dims))
    if name not in ("cumsum", "cumprod", "logcumsumexp", "cummax", "cummin", "count_nonzero", "argsort", "sort") \
            and chance.random() < 0.5:
        named["keepdim"] = chance.choice([True, False])
    if chance.random() < 0.4:
        return name, [x, named.pop("dim")], named
    return name, [x], named


def shape_of(chance):
    x = given(sizes(chance, chance.randint(2, 4), 1, 4))
    shape, dims = x["shape"], len(x["shape"])
    dim, other = chance.randrange(-dims, dims), chance.randrange(dims)
    size = shape[dim]
    return chance.choice([
        ("transpose", [x, dim, other], {}), ("permute", [x, chance.sample(range(dims), dims)], {}),
        ("reshape", [x, [-1]], {}), ("view", [x, [shape[0], -1]], {}), ("flatten", [x, 0, other], {}),
        ("unsqueeze", [x, chance.randint(-dims - 1, dims)], {}), ("squeeze", [x], {}), ("squeeze", [x, dim], {}),
        ("expand", [given([1, *shape]), [3, *shape]], {}), ("expand", [given([1, *shape]), [3, *[-1] * dims]], {}),
        ("repeat", [x, [2] * dims], {}), ("narrow", [x, dim, 0, chance.randint(1, size)], {}),
        ("select", [x, dim, chance.randrange(-size, size)], {}), ("flip", [x, [dim]], {}),
        ("roll", [x, chance.randint(-3, 3), dim], {}), ("roll", [x, 1], {}), ("chunk", [x, 2, dim], {}),
        ("split", [x, chance.randint(1, 3), dim], {}), ("unbind", [x, dim], {}), ("movedim", [x, dim, other], {}),
        ("diagonal", [x], {"offset": 0}), ("tril", [x, chance.randint(-1, 1)], {}), ("triu", [x], {}),
        ("swapaxes", [x, dim, other], {}), ("rot90", [x], {}), ("unflatten", [x, dim, [1, size]], {}),
        ("tile", [x, [2, 1]], {}), ("unfold", [x, dim, 1, 1], {}), ("numel", [x], {}), ("size", [x, dim], {}),
        ("dim", [x], {}), ("broadcast_to", [given([1, *shape]), [2, *shape]], {}), ("diff", [x], {}),
        ("repeat_interleave", [x, 2, other], {}), ("ravel", [x], {}), ("t", [given([2, 3])], {}),
    ])


def joined(chance):
    shape = sizes(chance, chance.randint(1, 3), 1, 4)
    dim = chance.randrange(-len(shape), len(shape))
    parts = [given(shape, k) for k in range(1, chance.randint(2, 4))]
    return chance.choice([("cat", [parts, dim], {}), ("cat", [parts], {"dim": dim}), ("stack", [parts, dim], {}),
                          ("stack", [parts], {}), ("concat", [parts, dim], {}), ("hstack", [parts], {}),
                          ("vstack", [parts], {}), ("einsum", ["ij,jk->ik", [given([2, 3]), given([3, 4], 2)]], {}),
                          ("where", [tensor(shape, 3, 0, 2, "bool"), given(shape), given(shape, 2)], {}),])


def picked(chance):
    rows, width = chance.randint(2, 5), chance.randint(2, 5)
    x = given([rows, width])
    index = tensor([rows, 2], 2, 0, width, "int64")
    row = tensor([3], 2, 0, rows, "int64")
    mask = tensor([rows, width], 3, 0, 2, "bool")
    return chance.choice([
        ("gather", [x, 1, index], {}), ("index_select", [x, 0, row], {}), ("masked_fill", [x, mask, 1.5], {}),
        ("masked_fill_", [x, mask, 2], {}), ("masked_select", [x, mask], {}), ("take", [x, row], {}),
        ("topk", [x, 2], {}), ("topk", [x, 1, 0, False], {}), ("topk", [x, 2], {"dim": -1, "largest": False}),
        ("scatter", [x, 1, index, 0.5], {}), ("scatter_add", [x, 1, index, given([rows, 2], 4)], {}),
        ("index_add", [x, 0, tensor([2], 2, 0, rows, "int64"), given([2, width], 4)], {}),
        ("clamp", [x, -0.5, 0.5], {}), ("clamp", [x], {"min": 0}), ("clamp", [x], {"max": 1}), ("clamp_", [x, -1, 1], {}),
        ("clamp_min", [x, 0.2], {}), ("clip", [x, -1, 1], {}), ("kthvalue", [x, 2], {}), ("lerp", [x, like(x, 2), 0.3], {}),
        ("addcmul", [x, like(x, 2), like(x, 3)], {"value": 0.5}), ("addcdiv", [x, like(x, 2), like(x, 3, 0.5, 2)], {}),
        ("fill_", [x, 2], {}), ("masked_scatter", [x, mask, given([rows, width], 5)], {}), ("cross", [given([2, 3]), given([2, 3], 2)], {}),
        ("take_along_dim", [x, index, 1], {}), ("bucketize", [x, tensor([3], 0, 0, 1)], {}), ("nonzero", [mask], {}),
        ("renorm", [x, 2, 0, 1.0], {}), ("heaviside", [x, given([1], 2)], {}), ("trapz", [x], {}),
    ])


def product(chance):
    n, a, b, c = sizes(chance, 4)
    return chance.choice([
        ("matmul", [given([a, b]), given([b, c], 2)], {}), ("mm", [given([a, b]), given([b, c], 2)], {}),
        ("matmul", [given([n, a, b]), given([b, c], 2)], {}), ("bmm", [given([n, a, b]), given([n, b, c], 2)], {}),
        ("matmul", [given([b]), given([b], 2)], {}), ("dot", [given([b]), given([b], 2)], {}),
        ("addmm", [given([c], 3), given([a, b]), given([b, c], 2)], {"beta": 0.5, "alpha": 2}),
        ("outer", [given([a]), given([b], 2)], {}), ("mv", [given([a, b]), given([b], 2)], {}),
        ("baddbmm", [given([n, a, c], 3), given([n, a, b]), given([n, b, c], 2)], {}),
        ("kron", [given([a, b]), given([b, c], 2)], {}), ("inner", [given([a, b]), given([c, b], 2)], {}),
        ("cdist", [given([a, b]), given([c, b], 2)], {}),
        ("trace", [given([a, b])], {}), ("vdot", [given([b]), given([b], 2)], {}), ("addmv", [given([a], 3), given([a, b]), given([b], 2)], {}),
        ("addbmm", [given([a, c], 3), given([n, a, b]), given([n, b, c], 2)], {}), ("diag", [given([b])], {}),
    ])


FAMILIES = [unary, unary, binary, binary, whole, reduction, reduction, shape_of, shape_of, joined, picked, picked, product]
AS_FUNCTION = ["cat", "stack", "concat", "hstack", "vstack", "einsum", "where", "kron", "cdist", "addmm", "bucketize"]
# Names that torch has only for tensors, or that mean something else in torch.nn.functional.
AS_METHOD = ["view", "expand", "repeat", "contiguous", "unfold", "size", "dim", "masked_fill_", "fill_", "zero_", "positive", "numel"]


def generate(chance):
    name, positional, named = chance.choice(FAMILIES)(chance)
    as_method = name in AS_METHOD or (name not in AS_FUNCTION and chance.random() < 0.6)
    if name.endswith("_") or name in ("relu", "sigmoid", "tanh"):
        as_method = True
    return {"call": "method" if as_method else "F", "name": name, "positional": positional, "named": named}
