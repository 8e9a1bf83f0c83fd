"""Writes signatures.json: the arguments of layers, losses and optimizers as PyTorch 2.11 has them.

    python make_signatures.py > signatures.json

{"layers": {type: [[name, default] or [name] when required, ...]}, "optimizers": {...}}; a third
element "named" marks keyword-only ones. None is null, a function its name.
"""

import inspect
import json

import torch
from torch import nn

LAYERS = """Linear Conv1d Conv2d ConvTranspose2d Embedding LayerNorm RMSNorm BatchNorm2d GroupNorm
ReLU GELU SiLU Tanh Sigmoid Softmax LeakyReLU ELU SELU CELU Softplus Softsign Hardswish Hardsigmoid
Hardtanh ReLU6 Mish LogSoftmax LogSigmoid Tanhshrink Softshrink Hardshrink Threshold GLU PReLU Dropout MaxPool2d AvgPool2d AdaptiveAvgPool2d Flatten
Unflatten Identity Sequential MultiheadAttention TransformerEncoderLayer TransformerDecoderLayer
CrossEntropyLoss NLLLoss MSELoss L1Loss BCEWithLogitsLoss""".split()
OPTIMIZERS = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}


def plain(value):
    return value.__name__ if callable(value) else value


def signature(function):
    result = []
    for parameter in list(inspect.signature(function).parameters.values())[1:]:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        entry = [parameter.name]
        if parameter.default is not parameter.empty:
            entry.append(plain(parameter.default))
        if parameter.kind is parameter.KEYWORD_ONLY:
            entry.append("named")
        result.append(entry)
    return result


print("{")
print(' "layers": {')
print(",\n".join(f"  {json.dumps(n)}: {json.dumps(signature(getattr(nn, n).__init__))}" for n in LAYERS))
print(' },\n "optimizers": {')
print(",\n".join(f"  {json.dumps(n)}: {json.dumps(signature(c.__init__)[1:])}" for n, c in OPTIMIZERS.items()))
print(" }\n}")
