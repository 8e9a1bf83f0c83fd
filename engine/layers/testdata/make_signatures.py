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
Unflatten Identity Sequential MultiheadAttention Transformer TransformerEncoderLayer TransformerDecoderLayer
Conv3d ConvTranspose1d ConvTranspose3d BatchNorm1d BatchNorm3d InstanceNorm1d InstanceNorm2d InstanceNorm3d
Dropout1d Dropout2d Dropout3d AlphaDropout MaxPool1d MaxPool3d AvgPool1d AvgPool3d AdaptiveAvgPool1d
AdaptiveAvgPool3d AdaptiveMaxPool1d AdaptiveMaxPool2d AdaptiveMaxPool3d Upsample PixelShuffle PixelUnshuffle Unfold
Fold Bilinear CosineSimilarity PairwiseDistance EmbeddingBag
CrossEntropyLoss NLLLoss MSELoss L1Loss BCEWithLogitsLoss SmoothL1Loss HuberLoss BCELoss KLDivLoss PoissonNLLLoss
GaussianNLLLoss CTCLoss TripletMarginLoss CosineEmbeddingLoss""".split()
LAYERS += [f"{kind}Pad{dims}d" for kind in ("Zero", "Constant", "Reflection", "Replication", "Circular") for dims in (1, 2, 3)]
# Of these PyTorch has no signature that says what they take; RNNBase has.
RECURRENT = {"LSTM": ["proj_size"], "GRU": [], "RNN": ["nonlinearity"]}
OPTIMIZERS = {name.lower(): getattr(torch.optim, name) for name in
              "SGD Adam AdamW RMSprop Adagrad Adadelta NAdam RAdam Adamax Adafactor Muon".split()}


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


def recurrent(added):
    """RNNBase's, without its mode, and the two arguments that only some have."""
    entries = [entry for entry in signature(nn.RNNBase.__init__)[1:] if entry[0] != "proj_size" or entry[0] in added]
    if "nonlinearity" in added:
        entries.insert(3, ["nonlinearity", "tanh"])
    return entries


SIGNATURES = {name: signature(getattr(nn, name).__init__) for name in LAYERS}
SIGNATURES.update({name: recurrent(added) for name, added in RECURRENT.items()})
print("{")
print(' "layers": {')
print(",\n".join(f"  {json.dumps(n)}: {json.dumps(entries)}" for n, entries in SIGNATURES.items()))
print(' },\n "optimizers": {')
print(",\n".join(f"  {json.dumps(n)}: {json.dumps(signature(c.__init__)[1:])}" for n, c in OPTIMIZERS.items()))
print(" }\n}")
