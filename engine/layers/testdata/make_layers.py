"""Writes layers.json: what PyTorch 2.11.0 computes, as fingerprints of tensors.

    PYTHONPATH=tests:tests/differential python engine/layers/testdata/make_layers.py > layers.json

Each case builds a module after torch.manual_seed(seed), runs one forward pass after
torch.manual_seed(seed + 1) and a backward pass. Inputs and output gradients are formulas
(layers_golden_test.cc has the same). A fingerprint: [norm in double, elements at six places].
The modules, with those that torch.nn lacks, are those of tests/differential.
"""

import json
import math

import layers
from pytorch import torch


def formula(shape, multiplier, modulus):
    n = math.prod(shape)
    i = torch.arange(n, dtype=torch.int64)
    return (((i * multiplier) % modulus).to(torch.float64) / modulus - 0.5).float().view(shape)


def numbers(shape):
    return formula(shape, 7919, 1009)


def tokens(shape, vocabulary):
    i = torch.arange(math.prod(shape), dtype=torch.int64)
    return ((i * 31) % vocabulary).view(shape)


def hidden(shape):
    """A mask, which hides every third place."""
    return tokens(shape, 3) == 1


def fingerprint(tensor):
    flat = tensor.detach().reshape(-1)
    last = flat.numel() - 1
    places = [last * k // 5 for k in range(6)]
    return [flat.double().norm().item()] + [flat[p].item() for p in places]


def flat(outputs):
    """The tensors of a module's output, which an LSTM nests."""
    return [outputs] if torch.is_tensor(outputs) else [x for part in outputs for x in flat(part)]


def case(kind, args, shapes, vocabulary=0, training=True, masks=None):
    masks = masks or {}
    seed = 1234 + len(cases)
    torch.manual_seed(seed)
    module = layers.module({"type": kind, "positional": [], "named": args})
    values = dict(module.named_parameters())
    initial = {name: fingerprint(p) for name, p in values.items()}
    module.train(training)
    inputs = [tokens(s, vocabulary) if vocabulary else numbers(s).requires_grad_() for s in shapes]
    torch.manual_seed(seed + 1)
    output, *more = flat(module(*inputs, **{name: hidden(s) for name, s in masks.items()}))
    sum((x * formula(x.shape, 104729, 997)).sum() for x in [output, *more]).backward()
    cases.append({
        "type": kind, "args": args, "inputs": shapes, "vocabulary": vocabulary,
        "training": training, "seed": seed, "initial": initial, "output_shape": list(output.shape),
        "output": fingerprint(output),
        "input_grads": [] if vocabulary else [fingerprint(x.grad) for x in inputs],
        "grads": {name: fingerprint(p.grad) for name, p in values.items()},
        "buffers": {name: fingerprint(b.float()) for name, b in module.named_buffers()},
        **({"masks": masks} if masks else {}), **({"more": [fingerprint(x) for x in more]} if more else {}),
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
case("Conv3d", dict(in_channels=2, out_channels=4, kernel_size=[2, 3, 1], stride=2, padding=1, groups=2), [[2, 2, 4, 6, 5]])
case("Conv3d", dict(in_channels=2, out_channels=3, kernel_size=2, padding="same", padding_mode="replicate", bias=False), [[2, 2, 3, 4, 5]])
case("ConvTranspose1d", dict(in_channels=4, out_channels=6, kernel_size=3, stride=2, padding=1, output_padding=1, groups=2), [[2, 4, 6]])
case("ConvTranspose3d", dict(in_channels=3, out_channels=2, kernel_size=[2, 3, 1], dilation=2, bias=False), [[2, 3, 3, 5, 4]])
case("BatchNorm1d", dict(num_features=5), [[6, 5]])
case("BatchNorm1d", dict(num_features=5, momentum=0.3), [[3, 5, 4]])
case("BatchNorm3d", dict(num_features=3), [[2, 3, 4, 2, 3]])
case("BatchNorm3d", dict(num_features=3), [[2, 3, 4, 2, 3]], training=False)
case("InstanceNorm1d", dict(num_features=5), [[3, 5, 4]])
case("InstanceNorm2d", dict(num_features=3, affine=True, track_running_stats=True), [[2, 3, 4, 5]])
case("InstanceNorm2d", dict(num_features=3, affine=True, track_running_stats=True), [[2, 3, 4, 5]], training=False)
case("InstanceNorm3d", dict(num_features=3, affine=True, eps=1e-2), [[2, 3, 4, 2, 3]])
case("Dropout1d", {}, [[8, 5, 3]])
case("Dropout2d", dict(p=0.3), [[8, 5, 3, 2]])
case("Dropout3d", dict(p=0.2), [[8, 5, 3, 2, 2]])
case("Dropout2d", {}, [[8, 5, 3, 2]], training=False)
case("AlphaDropout", dict(p=0.3), [[40, 11]])
case("AlphaDropout", dict(p=0.3), [[40, 11]], training=False)
case("MaxPool1d", dict(kernel_size=3, stride=2, padding=1, ceil_mode=True), [[2, 3, 9]])
case("MaxPool3d", dict(kernel_size=[2, 3, 1], dilation=[1, 2, 1]), [[2, 3, 5, 9, 4]])
case("AvgPool1d", dict(kernel_size=3, padding=1, count_include_pad=False), [[2, 3, 9]])
case("AvgPool3d", dict(kernel_size=2, ceil_mode=True, divisor_override=3), [[2, 3, 5, 7, 4]])
case("AdaptiveAvgPool1d", dict(output_size=4), [[2, 3, 9]])
case("AdaptiveAvgPool3d", dict(output_size=[2, None, 3]), [[2, 3, 5, 4, 7]])
case("AdaptiveMaxPool1d", dict(output_size=4), [[2, 3, 9]])
case("AdaptiveMaxPool2d", dict(output_size=[None, 3]), [[2, 3, 4, 7]])
case("AdaptiveMaxPool3d", dict(output_size=2), [[2, 3, 5, 4, 7]])
case("ZeroPad1d", dict(padding=[1, -2]), [[2, 3, 7]])
case("ZeroPad2d", dict(padding=[1, 2, 0, 3]), [[2, 3, 4, 5]])
case("ZeroPad3d", dict(padding=1), [[2, 3, 2, 3, 2]])
case("ConstantPad1d", dict(padding=2, value=0.5), [[2, 3, 5]])
case("ConstantPad2d", dict(padding=[-1, 2, 1, 0], value=-1.5), [[2, 3, 4, 5]])
case("ConstantPad3d", dict(padding=[0, 1, 1, 0, 2, 1], value=3), [[2, 3, 2, 3, 2]])
for name in ("Reflection", "Replication", "Circular"):
    case(name + "Pad1d", dict(padding=[2, 1]), [[2, 3, 5]])
    case(name + "Pad2d", dict(padding=[2, 1, 0, 3]), [[2, 3, 4, 5]])
    case(name + "Pad3d", dict(padding=1), [[2, 3, 2, 3, 4]])
case("Upsample", dict(scale_factor=2), [[2, 3, 5]])
case("Upsample", dict(scale_factor=[1.5, 2.3]), [[2, 3, 5, 4]])
case("Upsample", dict(size=[7, 3], mode="nearest-exact"), [[2, 3, 5, 4]])
case("Upsample", dict(size=9, mode="linear"), [[2, 3, 5]])
case("Upsample", dict(scale_factor=1.7, mode="bilinear"), [[2, 3, 5, 4]])
case("Upsample", dict(scale_factor=1.7, mode="bilinear", recompute_scale_factor=True), [[2, 3, 5, 4]])
case("Upsample", dict(scale_factor=2, mode="bilinear", align_corners=True), [[2, 3, 5, 4]])
case("Upsample", dict(size=[8, 9], mode="bicubic"), [[2, 3, 5, 4]])
case("Upsample", dict(scale_factor=2, mode="trilinear"), [[2, 3, 2, 3, 2]])
case("Upsample", dict(size=3, mode="area"), [[2, 3, 7, 8]])
case("PixelShuffle", dict(upscale_factor=2), [[2, 12, 3, 2]])
case("PixelUnshuffle", dict(downscale_factor=3), [[2, 2, 6, 3]])
case("Unfold", dict(kernel_size=[2, 3], dilation=2, padding=1, stride=[1, 2]), [[2, 3, 6, 7]])
case("Fold", dict(output_size=[4, 5], kernel_size=[2, 3], padding=[0, 1]), [[2, 12, 15]])
case("Bilinear", dict(in1_features=5, in2_features=3, out_features=4), [[6, 5], [6, 3]])
case("Bilinear", dict(in1_features=5, in2_features=3, out_features=4, bias=False), [[2, 3, 5], [2, 3, 3]])
case("CosineSimilarity", {}, [[6, 5], [1, 5]])
case("PairwiseDistance", dict(p=1.0, keepdim=True), [[6, 5], [1, 5]])
case("EmbeddingBag", dict(num_embeddings=100, embedding_dim=33), [[4, 9]], vocabulary=100)
case("EmbeddingBag", dict(num_embeddings=10, embedding_dim=5, mode="sum", padding_idx=3, scale_grad_by_freq=True), [[4, 9]], vocabulary=10)
case("EmbeddingBag", dict(num_embeddings=10, embedding_dim=5, mode="max", max_norm=1.5), [[4, 9]], vocabulary=10)
case("RNN", dict(input_size=4, hidden_size=5), [[6, 3, 4]])
case("RNN", dict(input_size=4, hidden_size=5, num_layers=2, nonlinearity="relu", bias=False, batch_first=True), [[3, 6, 4]])
case("LSTM", dict(input_size=4, hidden_size=5), [[6, 3, 4]])
case("LSTM", dict(input_size=4, hidden_size=5, num_layers=2, batch_first=True, bidirectional=True), [[3, 6, 4]])
case("LSTM", dict(input_size=4, hidden_size=5, num_layers=3, dropout=0.4, batch_first=True), [[3, 6, 4]])
case("LSTM", dict(input_size=4, hidden_size=5, num_layers=2, dropout=0.4, bidirectional=True), [[6, 3, 4]])
case("LSTM", dict(input_size=4, hidden_size=5, proj_size=2, bias=False), [[6, 3, 4]])
case("LSTM", dict(input_size=4, hidden_size=5), [[6, 3, 4], [1, 3, 5], [1, 3, 5]])
case("GRU", dict(input_size=4, hidden_size=5, num_layers=2), [[6, 3, 4]])
case("GRU", dict(input_size=4, hidden_size=5, bidirectional=True, batch_first=True), [[3, 6, 4]])
case("GRU", dict(input_size=4, hidden_size=5, num_layers=2, dropout=0.4), [[6, 3, 4], [2, 3, 5]])
case("MultiheadAttention", dict(attention, batch_first=True), [[2, 5, 12]], masks=dict(key_padding_mask=[2, 5]))
case("MultiheadAttention", attention, [[5, 2, 12], [7, 2, 12], [7, 2, 12]], masks=dict(key_padding_mask=[2, 7], attn_mask=[5, 7]))
case("MultiheadAttention", dict(attention, add_bias_kv=True, add_zero_attn=True), [[5, 2, 12]], masks=dict(key_padding_mask=[2, 5]))
case("MultiheadAttention", dict(attention, dropout=0.3), [[5, 2, 12]], masks=dict(attn_mask=[6, 5, 5]))
case("TransformerEncoderLayer", dict(block, dropout=0.0, batch_first=True), [[2, 5, 12]], masks=dict(src_key_padding_mask=[2, 5]))
case("TransformerEncoderLayer", dict(block, dropout=0.2, norm_first=True), [[5, 2, 12]], masks=dict(src_mask=[5, 5]))
case("TransformerEncoderLayer", dict(block, dropout=0.0, causal=True), [[5, 2, 12]], masks=dict(src_key_padding_mask=[2, 5]))
case("TransformerDecoderLayer", dict(block, dropout=0.0, batch_first=True), [[2, 5, 12], [2, 7, 12]],
     masks=dict(tgt_key_padding_mask=[2, 5], memory_key_padding_mask=[2, 7], memory_mask=[5, 7]))
case("RotaryEmbedding", dict(dim=6), [[2, 3, 5, 6]])
case("RotaryEmbedding", dict(dim=4, theta=100.0), [[2, 5, 4]])
case("GroupedQueryAttention", dict(dim=16, num_heads=4, num_kv_heads=2), [[2, 5, 16]])
case("GroupedQueryAttention", dict(dim=12, num_heads=3, rope_theta=None, causal=False), [[2, 5, 12]])
case("SwiGLU", dict(dim=6, hidden=10), [[2, 5, 6]])
whole = dict(block, num_encoder_layers=2, num_decoder_layers=2)
case("Transformer", dict(whole, dropout=0.0), [[7, 2, 12], [5, 2, 12]])
case("Transformer", dict(whole, num_decoder_layers=1), [[7, 2, 12], [5, 2, 12]])
case("Transformer", dict(whole, dropout=0.2, norm_first=True, causal=True, activation="gelu"), [[7, 2, 12], [5, 2, 12]])
case("Transformer", dict(whole, bias=False, layer_norm_eps=1e-3), [[7, 2, 12], [5, 2, 12]])
case("Transformer", dict(whole, batch_first=True), [[2, 7, 12], [2, 5, 12]], training=False)
case("Transformer", dict(whole, dropout=0.0, batch_first=True), [[2, 7, 12], [2, 5, 12]],
     masks=dict(src_key_padding_mask=[2, 7], tgt_key_padding_mask=[2, 5], memory_key_padding_mask=[2, 7],
                src_mask=[7, 7], tgt_mask=[5, 5], memory_mask=[5, 7]))
case("Transformer", dict(whole, dropout=0.0, norm_first=True, causal=True), [[7, 2, 12], [5, 2, 12]],
     masks=dict(src_key_padding_mask=[2, 7], memory_key_padding_mask=[2, 7]))

print('{"cases": [')
print(",\n".join(json.dumps(c, separators=(",", ":")) for c in cases))
print("]}")
