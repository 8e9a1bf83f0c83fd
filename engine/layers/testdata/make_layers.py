"""Writes layers.json: what PyTorch 2.11.0 computes, as fingerprints of tensors.

    python make_layers.py > layers.json

Each case builds a module after torch.manual_seed(seed), runs one forward pass after
torch.manual_seed(seed + 1) and a backward pass. Inputs and output gradients are formulas
(layers_golden_test.cc has the same). A fingerprint: [norm in double, elements at six places].
"""

import json
import math

import torch
from torch import nn

torch.set_num_threads(1)


def formula(shape, multiplier, modulus):
    n = math.prod(shape)
    i = torch.arange(n, dtype=torch.int64)
    return (((i * multiplier) % modulus).to(torch.float64) / modulus - 0.5).float().view(shape)


def numbers(shape):
    return formula(shape, 7919, 1009)


def tokens(shape, vocabulary):
    i = torch.arange(math.prod(shape), dtype=torch.int64)
    return ((i * 31) % vocabulary).view(shape)


def fingerprint(tensor):
    flat = tensor.detach().reshape(-1)
    last = flat.numel() - 1
    places = [last * k // 5 for k in range(6)]
    return [flat.double().norm().item()] + [flat[p].item() for p in places]


class Attention(nn.Module):
    """MultiheadAttention as a layer of one tensor."""

    def __init__(self, causal=False, **args):
        super().__init__()
        self.inner = nn.MultiheadAttention(**args)
        self.causal = causal

    def forward(self, query, key=None, value=None):
        key = query if key is None else key
        value = query if value is None else value
        mask = None
        if self.causal:
            length = query.size(1 if self.inner.batch_first else 0)
            mask = nn.Transformer.generate_square_subsequent_mask(length)
        return self.inner(query, key, value, need_weights=False, attn_mask=mask,
                          is_causal=self.causal)[0]


class Encoder(nn.Module):
    def __init__(self, causal=False, **args):
        super().__init__()
        self.inner = nn.TransformerEncoderLayer(**args)
        self.causal = causal

    def forward(self, x):
        if not self.causal:
            return self.inner(x)
        length = x.size(1 if self.inner.self_attn.batch_first else 0)
        mask = nn.Transformer.generate_square_subsequent_mask(length)
        return self.inner(x, src_mask=mask, is_causal=True)


class Decoder(nn.Module):
    def __init__(self, causal=False, **args):
        super().__init__()
        self.inner = nn.TransformerDecoderLayer(**args)
        self.causal = causal

    def forward(self, x, memory=None):
        own_memory = memory is None
        memory = x if own_memory else memory
        if not self.causal:
            return self.inner(x, memory)
        length = x.size(1 if self.inner.self_attn.batch_first else 0)
        mask = nn.Transformer.generate_square_subsequent_mask(length)
        return self.inner(x, memory, tgt_mask=mask, tgt_is_causal=True,
                          memory_mask=mask if own_memory else None, memory_is_causal=own_memory)


WRAPPERS = {"MultiheadAttention": Attention, "TransformerEncoderLayer": Encoder,
            "TransformerDecoderLayer": Decoder}


def module_of(kind, args):
    return WRAPPERS.get(kind, getattr(nn, kind, None))(**args)


def case(kind, args, shapes, vocabulary=0, training=True):
    seed = 1234 + len(cases)
    torch.manual_seed(seed)
    module = module_of(kind, args)
    values = {name.removeprefix("inner."): p for name, p in module.named_parameters()}
    initial = {name: fingerprint(p) for name, p in values.items()}
    module.train(training)
    inputs = [tokens(s, vocabulary) if vocabulary else numbers(s).requires_grad_() for s in shapes]
    torch.manual_seed(seed + 1)
    output = module(*inputs)
    output.backward(formula(output.shape, 104729, 997))
    cases.append({
        "type": kind, "args": args, "inputs": shapes, "vocabulary": vocabulary,
        "training": training, "seed": seed, "initial": initial, "output_shape": list(output.shape),
        "output": fingerprint(output),
        "input_grads": [] if vocabulary else [fingerprint(x.grad) for x in inputs],
        "grads": {name: fingerprint(p.grad) for name, p in values.items()},
        "buffers": {name: fingerprint(b.float()) for name, b in module.named_buffers()},
    })


cases = []
case("Linear", dict(in_features=300, out_features=70), [[8, 300]])
case("Linear", dict(in_features=5, out_features=3, bias=False), [[4, 6, 5]])
case("Conv1d", dict(in_channels=4, out_channels=6, kernel_size=5, stride=2, padding=2, groups=2), [[3, 4, 11]])
case("Conv1d", dict(in_channels=2, out_channels=3, kernel_size=4, padding="same"), [[3, 2, 9]])
case("Conv2d", dict(in_channels=3, out_channels=8, kernel_size=3, stride=2, padding=1), [[4, 3, 10, 9]])
case("Conv2d", dict(in_channels=2, out_channels=4, kernel_size=[2, 3], padding="same", bias=False), [[2, 2, 6, 5]])
case("Conv2d", dict(in_channels=2, out_channels=4, kernel_size=3, padding="valid", dilation=2), [[2, 2, 8, 7]])
case("Conv2d", dict(in_channels=2, out_channels=4, kernel_size=3, padding=1, padding_mode="reflect"), [[2, 2, 6, 5]])
case("Conv2d", dict(in_channels=2, out_channels=4, kernel_size=3, padding=[2, 1], padding_mode="circular"), [[2, 2, 6, 5]])
case("Conv2d", dict(in_channels=2, out_channels=2, kernel_size=4, padding="same", padding_mode="replicate"), [[2, 2, 6, 5]])
case("ConvTranspose2d", dict(in_channels=4, out_channels=6, kernel_size=3, stride=2, padding=1, output_padding=1, groups=2), [[2, 4, 5, 6]])
case("ConvTranspose2d", dict(in_channels=3, out_channels=2, kernel_size=[2, 3], dilation=2, bias=False), [[2, 3, 5, 4]])
case("Embedding", dict(num_embeddings=100, embedding_dim=33), [[4, 9]], vocabulary=100)
case("Embedding", dict(num_embeddings=10, embedding_dim=5, padding_idx=3), [[4, 9]], vocabulary=10)
case("Embedding", dict(num_embeddings=64, embedding_dim=6, padding_idx=3, max_norm=1.5, scale_grad_by_freq=True), [[3, 7]], vocabulary=9)
case("LayerNorm", dict(normalized_shape=[6, 5]), [[3, 4, 6, 5]])
case("LayerNorm", dict(normalized_shape=7, bias=False, eps=1e-3), [[3, 7]])
case("LayerNorm", dict(normalized_shape=7, elementwise_affine=False), [[3, 7]])
case("RMSNorm", dict(normalized_shape=[7]), [[3, 7]])
case("RMSNorm", dict(normalized_shape=7, eps=1e-2, elementwise_affine=False), [[3, 7]])
case("BatchNorm2d", dict(num_features=5), [[3, 5, 4, 4]])
case("BatchNorm2d", dict(num_features=5), [[3, 5, 4, 4]], training=False)
case("BatchNorm2d", dict(num_features=5, momentum=None, affine=False), [[3, 5, 4, 4]])
case("BatchNorm2d", dict(num_features=5, track_running_stats=False), [[3, 5, 4, 4]], training=False)
case("GroupNorm", dict(num_groups=3, num_channels=6), [[2, 6, 4, 5]])
case("GroupNorm", dict(num_groups=1, num_channels=6, affine=False, eps=1e-3), [[2, 6, 4]])
for name in ("ReLU", "SiLU", "Tanh", "Sigmoid", "GELU", "LeakyReLU"):
    case(name, {}, [[6, 11]])
case("GELU", dict(approximate="tanh"), [[6, 11]])
case("LeakyReLU", dict(negative_slope=0.2), [[6, 11]])
case("Softmax", dict(dim=-1), [[6, 11]])
case("Softmax", {}, [[2, 3, 4]])
case("Softmax", {}, [[2, 3, 4, 5]])
case("Dropout", {}, [[40, 11]])
case("Dropout", dict(p=0.25), [[40, 11]], training=False)
case("MaxPool2d", dict(kernel_size=3, stride=2, padding=1), [[2, 3, 9, 8]])
case("MaxPool2d", dict(kernel_size=[2, 3], dilation=2, ceil_mode=True), [[2, 3, 9, 8]])
case("AvgPool2d", dict(kernel_size=3, padding=1, count_include_pad=False), [[2, 3, 9, 8]])
case("AvgPool2d", dict(kernel_size=2, ceil_mode=True, divisor_override=3), [[2, 3, 9, 7]])
case("AdaptiveAvgPool2d", dict(output_size=[6, 6]), [[2, 3, 9, 8]])
case("AdaptiveAvgPool2d", dict(output_size=[None, 3]), [[2, 3, 9, 8]])
case("Flatten", {}, [[2, 3, 4, 5]])
case("Flatten", dict(start_dim=0, end_dim=-2), [[2, 3, 4, 5]])
case("Unflatten", dict(dim=1, unflattened_size=[2, -1]), [[2, 12, 3]])
case("Identity", {}, [[2, 3]])
attention = dict(embed_dim=12, num_heads=3)
case("MultiheadAttention", attention, [[5, 2, 12]])
case("MultiheadAttention", dict(attention, batch_first=True, causal=True), [[2, 5, 12]])
case("MultiheadAttention", dict(attention, dropout=0.3, bias=False), [[5, 2, 12]])
case("MultiheadAttention", dict(attention, kdim=6, vdim=4), [[5, 2, 12], [7, 2, 6], [7, 2, 4]])
case("MultiheadAttention", dict(attention, batch_first=True), [[2, 5, 12], [2, 7, 12], [2, 7, 12]])
case("MultiheadAttention", dict(attention, add_bias_kv=True, add_zero_attn=True), [[5, 2, 12]])
block = dict(d_model=12, nhead=3, dim_feedforward=20)
case("TransformerEncoderLayer", dict(block, dropout=0.0), [[5, 2, 12]])
case("TransformerEncoderLayer", dict(block, activation="gelu", norm_first=True, batch_first=True, causal=True, dropout=0.0), [[2, 5, 12]])
case("TransformerEncoderLayer", dict(block, bias=False, layer_norm_eps=1e-3), [[5, 2, 12]])
case("TransformerDecoderLayer", dict(block, dropout=0.0), [[5, 2, 12]])
case("TransformerDecoderLayer", block, [[5, 2, 12]])
case("TransformerDecoderLayer", dict(block, dropout=0.0, norm_first=True, batch_first=True, causal=True), [[2, 5, 12]])
case("TransformerDecoderLayer", dict(block, dropout=0.2, norm_first=True, causal=True), [[5, 2, 12]])
case("TransformerDecoderLayer", dict(block, causal=True), [[5, 2, 12], [7, 2, 12]])
case("TransformerDecoderLayer", dict(block, dropout=0.0), [[5, 2, 12]], training=False)
for name in ("ELU", "SELU", "CELU", "Softplus", "Softsign", "Hardswish", "Hardsigmoid", "Hardtanh", "ReLU6", "Mish",
             "LogSoftmax", "LogSigmoid", "Tanhshrink", "Softshrink", "Hardshrink"):
    case(name, {}, [[6, 11]])
case("ELU", dict(alpha=0.3), [[6, 11]])
case("CELU", dict(alpha=0.3), [[6, 11]])
case("Softplus", dict(beta=3.0, threshold=1.0), [[6, 11]])
case("Hardtanh", dict(min_val=-0.2, max_val=0.3), [[6, 11]])
case("LogSoftmax", dict(dim=-1), [[2, 3, 4]])
case("Softshrink", dict(lambd=0.2), [[6, 11]])
case("Hardshrink", dict(lambd=0.2), [[6, 11]])
case("Threshold", dict(threshold=0.1, value=-2.0), [[6, 11]])
case("GLU", {}, [[6, 10]])
case("GLU", dict(dim=1), [[2, 6, 3]])
case("PReLU", {}, [[6, 11]])
case("PReLU", dict(num_parameters=3, init=0.1), [[2, 3, 4, 5]])

print('{"cases": [')
print(",\n".join(json.dumps(c, separators=(",", ":")) for c in cases))
print("]}")
