"""Writes signatures.json: the arguments of layers, losses and optimizers as PyTorch 2.11 has them.

    PYTHONPATH=tests:tests/differential python engine/layers/testdata/make_signatures.py > signatures.json

{"layers": {type: [[name, default] or [name] when required, ...]}, "optimizers": {...}}; a third
element "named" marks keyword-only ones. None is null, a function its name.
"""

import inspect
import json

import layers
from pytorch import torch

nn = torch.nn
LOSSES = """CrossEntropyLoss NLLLoss MSELoss L1Loss BCEWithLogitsLoss SmoothL1Loss HuberLoss BCELoss KLDivLoss
PoissonNLLLoss GaussianNLLLoss CTCLoss TripletMarginLoss CosineEmbeddingLoss""".split()
OPTIMIZERS = {name.lower(): getattr(torch.optim, name) for name in
              "SGD Adam AdamW RMSprop Adagrad Adadelta NAdam RAdam Adamax Adafactor Muon".split()}


def plain(value):
    return value.__name__ if callable(value) else value


def signature(parameters):
    result = []
    for name, parameter in parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        entry = [name]
        if parameter.default is not parameter.empty:
            entry.append("tanh" if name == "nonlinearity" else plain(parameter.default))  # RNNBase has none
        if parameter.kind is parameter.KEYWORD_ONLY:
            entry.append("named")
        result.append(entry)
    return result


def of_optimizer(kind):
    return signature(dict(list(inspect.signature(kind).parameters.items())[1:]))


LAYERS = {name: signature(layers.parameters(name)) for name in [*layers.GENERATORS, *LOSSES] if hasattr(nn, name)}
print("{")
print(' "layers": {')
print(",\n".join(f"  {json.dumps(n)}: {json.dumps(entries)}" for n, entries in LAYERS.items()))
print(' },\n "optimizers": {')
print(",\n".join(f"  {json.dumps(n)}: {json.dumps(of_optimizer(kind))}" for n, kind in OPTIMIZERS.items()))
print(" }\n}")
