"""Writes signatures.txt: what the functions of torch.nn.functional and torch.nn.init take, from
PyTorch 2.11.0 itself.

    python make_signatures.py > signatures.txt

A line is a function, in the words of PyTorch's operator schemas: names, order, types and defaults.
Those written in Python tell them in their source, the built-in ones by their operator's schema.
Functions of torch itself that are more than an operator begin with "torch.", those of torch.nn.init
with "nn.init."; names that there are no functions for begin with "no ", and say why.
"""

import ast
import inspect
import re

import torch
from torch.nn import functional as F
from torch.nn import init

# What scripts have no use for, and what stands for it.
LEFT_OUT = {
    "assert_int_or_pair": "a check of PyTorch's own",
    "boolean_dispatch": "a part of PyTorch's own",
    "handle_torch_function": "a part of PyTorch's own, for subclasses of its tensors in Python",
    "has_torch_function": "a part of PyTorch's own, for subclasses of its tensors in Python",
    "has_torch_function_unary": "a part of PyTorch's own, for subclasses of its tensors in Python",
    "has_torch_function_variadic": "a part of PyTorch's own, for subclasses of its tensors in Python",
    "scaled_grouped_mm": "it takes 8-bit floats, which Strata has not; use F.grouped_mm",
    "scaled_mm": "it takes 8-bit floats, which Strata has not; use F.matmul",
}

# Types that the source does not tell, or tells too narrowly: "Any" is checked where it is used.
TYPES = {
    **{(name, "output_size"): f"int?[{dims}]"
       for dims in (2, 3)
       for name in (f"adaptive_avg_pool{dims}d", f"adaptive_max_pool{dims}d_with_indices")},
    **{("ctc_loss", name): "Any" for name in ("input_lengths", "target_lengths")},
    ("gaussian_nll_loss", "var"): "Any",
    **{(name, "input"): "Tensor"
       for name in ("sigmoid", "softsign", "tanh", "tanhshrink", "upsample", "upsample_bilinear",
                    "upsample_nearest")},
    **{(name, key): type
       for name in ("interpolate", "upsample", "upsample_bilinear", "upsample_nearest")
       for key, type in (("size", "int[1]?"), ("scale_factor", "float[1]?"))},
    **{(f"lp_pool{dims}d", "norm_type"): "float" for dims in (1, 2, 3)},
    ("normalize", "dim"): "int[1]",
    ("triplet_margin_with_distance_loss", "distance_function"): "Any?",
    ("upsample", "align_corners"): "bool?",
    ("upsample", "mode"): "str",
    ("norm", "input"): "Tensor",
    ("norm", "p"): "Any?",
    ("norm", "dim"): "int[1]?",
    ("norm", "keepdim"): "bool",
    ("norm", "out"): "Tensor?",
    ("norm", "dtype"): "ScalarType?",
    ("unique_consecutive", "return_inverse"): "bool",
    ("unique_consecutive", "return_counts"): "bool",
    ("unique_consecutive", "dim"): "int?",
    ("calculate_gain", "nonlinearity"): "str",
    ("calculate_gain", "param"): "float?",
    **{(f"kaiming_{kind}_", key): "str"
       for kind in ("normal", "uniform")
       for key in ("mode", "nonlinearity")},
}

# Functions of torch that Python makes of several operators.
OF_TORCH = {
    "norm": torch.functional.norm,
    "stft": torch.functional.stft,
    "unique": torch.functional._unique_impl,
    "unique_consecutive": torch.functional._unique_consecutive_impl,
}
# Of torch.nn.init. The generator is the thread's.
OF_INIT = ("calculate_gain", "constant_", "dirac_", "eye_", "kaiming_normal_", "kaiming_uniform_", "normal_", "ones_",
           "orthogonal_", "sparse_", "trunc_normal_", "uniform_", "xavier_normal_", "xavier_uniform_", "zeros_")
# Two with a signature that PyTorch has kept for its elders, add(input, alpha, other); alpha behind
# other is ours.
BY_HAND = [f"torch.{name}(Tensor input, Any other, Any? alpha=None) -> Tensor" for name in ("add", "sub")]


def type_of(name, key, annotation):
    if (name, key) in TYPES:
        return TYPES[name, key]
    plain = {"Tensor": "Tensor", "int": "int", "float": "float", "bool": "bool", "str": "str",
             "DType": "ScalarType", "torch.dtype": "ScalarType", "list[int]": "int[]"}
    if annotation in plain:
        return plain[annotation]
    if several := re.fullmatch(r"BroadcastingList(\d)\[(int|float)\]", annotation):
        return f"{several[2]}[{several[1]}]"
    if maybe := re.fullmatch(r"Optional\[(.*)\]", annotation):
        return type_of(name, key, maybe[1]) + "?"
    if maybe := re.fullmatch(r"(.*) \| None", annotation):
        return type_of(name, key, maybe[1]) + "?"
    raise SystemExit(f"{name}: {key} is a {annotation}; say in TYPES what that is")


def default_text(type, value):
    if isinstance(value, str):
        return f'"{value}"'
    return repr(float(value)) if type == "float" and value is not None else repr(value)


def of_source(name, function):
    """The line of a function in Python. Annotations are read in the source: some mean nothing at
    run time."""
    tree = ast.parse(inspect.getsource(function)).body[0]
    annotations = {argument.arg: argument.annotation and ast.unparse(argument.annotation)
                   for argument in tree.args.args + tree.args.kwonlyargs}
    parts, by_name = [], False
    for key, parameter in inspect.signature(function).parameters.items():
        if parameter.kind == parameter.KEYWORD_ONLY and not by_name:
            parts.append("*")
            by_name = True
        if key == "generator":
            continue
        type = type_of(name, key, annotations[key])
        default = parameter.default
        text = "" if default is parameter.empty else "=" + default_text(type, default)
        parts.append(f"{type} {key}{text}")
    return f"{function_name(name)}({', '.join(parts)}) -> {'float' if name == 'calculate_gain' else 'Tensor'}"


def function_name(name):
    return f"torch.{name}" if name in OF_TORCH else f"nn.init.{name}" if name in OF_INIT else name


def of_operator(name, function):
    """The line of a built-in function. Python calls the tensor `input`, the operator `self`."""
    schema = str(torch._C._jit_get_schemas_for_operator(f"aten::{function.__name__}")[0])
    text = re.sub(r"^aten::[^(]*", name, schema).replace(" self", " input").replace("SymInt", "int")
    text = re.sub(r"\([a-z]!\)", "", text)  # what it changes
    text = re.sub(r"=\[(\w+)(, \1)*\]", r"=\1", text)  # one number for all
    return re.sub(r"(\d\.\d+e?-?\d*)", lambda number: repr(float(number[0])), text)


def lines():
    for name in sorted(dir(F)):
        function = getattr(F, name)
        if name in LEFT_OUT:
            yield f"no {name}: {LEFT_OUT[name]}"
        elif name.startswith("_") or inspect.isclass(function) or not callable(function):
            continue
        elif inspect.isbuiltin(function):
            yield of_operator(name, function)
        elif getattr(function, "__module__", None) == F.__name__:
            # Where indices are asked for, another function answers, with the same arguments.
            inner = getattr(F, name + "_with_indices", function)
            yield of_source(name + "_with_indices", inner).replace("_with_indices", "") \
                if inner is not function else of_source(name, function)
    yield from BY_HAND
    yield from (of_source(name, function) for name, function in OF_TORCH.items())
    yield from (of_source(name, getattr(init, name)) for name in OF_INIT)


if __name__ == "__main__":
    print(f"# Written by make_signatures.py from PyTorch {torch.__version__.split('+')[0]}.")
    print("\n".join(lines()))
