"""Writes functional.json: what torch.nn.functional's functions give in PyTorch 2.11.0.

    python make_functional.py > functional.json

Each case is a call with its outputs, and the gradients of what may have some after a backward pass
from the outputs times a formula. functional.lua beside this file makes the same calls: as written,
with all arguments by position and with all of them by name, defaults included, which shows that
order, names and defaults are PyTorch's.
"""

import inspect
import json
import math
import warnings

import torch
from torch.nn import functional as F

torch.set_num_threads(1)
warnings.simplefilter("ignore")
CASES = []


class Given:
    """An argument that is a tensor, as data for both sides."""

    def __init__(self, tensor, **data):
        self.tensor, self.data = tensor, data


def formula(shape, step):
    i = torch.arange(math.prod(shape), dtype=torch.int64)
    return (((i * step) % 1009).to(torch.float64) / 1009 - 0.5).view(shape)


def x(*shape, scale=4, shift=0, step=7919, grad=True):
    """Floats that look like random ones."""
    tensor = (formula(shape, step) * scale + shift).float().requires_grad_(grad)
    return Given(tensor, floats=list(shape), scale=scale, shift=shift, step=step, grad=grad)


def y(*shape, scale=4, shift=0, grad=True):
    """Others."""
    return x(*shape, scale=scale, shift=shift, step=389, grad=grad)


def w(*shape):
    return x(*shape, scale=2, step=617)


def ints(data, dtype="int64"):
    tensor = torch.tensor(data, dtype=getattr(torch, dtype))
    return Given(tensor, data=data, dtype=dtype)


def bools(data):
    return ints(data, "bool")


def numbers(data):
    return ints(data, "float32")


def case(name, *args, **named):
    CASES.append((name, args, named))


def write(value):
    if isinstance(value, Given):
        return value.data
    if value is None:
        return {"none": True}
    return [write(element) for element in value] if isinstance(value, (list, tuple)) else value


def plain(value):
    return value.tensor if isinstance(value, Given) else value


def numbers_of(tensor):
    flat = tensor.detach().reshape(-1)
    if tensor.is_complex():
        flat = torch.view_as_real(flat).reshape(-1)
    if not flat.is_floating_point():
        return flat.tolist()
    return [float(f"{number:.6g}") for number in flat.double().tolist()]


def shown(tensor):
    return {"shape": list(tensor.shape), "dtype": str(tensor.dtype)[6:], "data": numbers_of(tensor)}


def signature(name):
    """None for a built-in function, whose order the operator's schema tells."""
    of_torch = {"norm": torch.functional.norm, "stft": torch.functional.stft,
                "unique": torch.functional._unique_impl,
                "unique_consecutive": torch.functional._unique_consecutive_impl}
    function = of_torch.get(name) or getattr(F, name, None)
    function = getattr(F, name + "_with_indices", function)
    return None if function is None or inspect.isbuiltin(function) else inspect.signature(function)


def written(signature):
    """Names in order, how many may come by position, and defaults."""
    parameters = signature.parameters.values()
    return {"names": [parameter.name for parameter in parameters],
            "by_position": sum(p.kind == p.POSITIONAL_OR_KEYWORD for p in parameters),
            "defaults": {p.name: write(p.default) for p in parameters if p.default is not p.empty}}


def run(name, args, named):
    function = getattr(F, name, None) or getattr(torch, name)
    leaves = {key: value.tensor for key, value in [*enumerate(args, 1), *named.items()]
              if isinstance(value, Given) and value.tensor.requires_grad}
    outputs = function(*[plain(v) for v in args], **{k: plain(v) for k, v in named.items()})
    outputs = [o for o in (outputs if isinstance(outputs, tuple) else (outputs,)) if o is not None]
    total = sum((o * formula(o.shape, 31).to(o.dtype)).sum() for o in outputs if o.requires_grad)
    if isinstance(total, torch.Tensor):
        total.abs().backward() if total.is_complex() else total.backward()
    result = {"name": name, "args": [write(v) for v in args],
              "gives": [shown(output) for output in outputs],
              "gradients": {key: numbers_of(leaf.grad) for key, leaf in leaves.items()
                            if leaf.grad is not None}}
    if named:
        result["named"] = {key: write(value) for key, value in named.items()}
    return result


# Activations.
for name in ("celu", "elu", "hardsigmoid", "hardswish", "hardtanh", "leaky_relu", "mish", "relu",
             "relu6", "selu", "silu", "softsign", "tanhshrink", "tanh", "sigmoid", "logsigmoid", "gelu",
             "hardshrink", "softplus", "softshrink"):
    case(name, x(7))
for name in ("celu", "elu", "hardsigmoid", "hardswish", "hardtanh", "leaky_relu", "mish", "relu",
             "relu6", "selu", "silu"):
    case(name, x(5, grad=False), inplace=True)
for name in ("celu_", "elu_", "hardtanh_", "leaky_relu_", "relu_", "selu_"):
    case(name, x(5, grad=False))
case("rrelu_", x(5, grad=False))
case("threshold_", x(5, grad=False), 0.5, 7.0)
case("threshold", x(6), 0.5, 7.0)
case("threshold", x(6, grad=False), 0.5, 7.0, True)
case("hardtanh", x(6), -0.5, 0.75)
case("leaky_relu", x(6), 0.3)
case("elu", x(6), alpha=0.5)
case("celu", x(6), 2.0)
case("gelu", x(6), approximate="tanh")
case("glu", x(2, 4))
case("glu", x(4, 2), 0)
case("prelu", x(2, 3), w(3))
case("softplus", x(6), 2, 1)
case("softshrink", x(6), 0.25)
case("hardshrink", x(6), 1)
case("rrelu", x(6))
case("rrelu", x(6), 0.1, 0.5)
for name in ("softmax", "log_softmax", "softmin"):
    case(name, x(4))
    case(name, x(2, 3))
    case(name, x(2, 2, 2))
    case(name, x(2, 3), 0)
    case(name, x(2, 3), dim=-1)
case("softmax", x(2, 3), 1, 3, None)

# Random functions in evaluation.
for name in ("dropout", "dropout1d", "alpha_dropout", "feature_alpha_dropout"):
    case(name, x(2, 3), 0.5, False)
    case(name, x(2, 3, grad=False), training=False, inplace=True)
case("alpha_dropout", x(2, 3))
case("feature_alpha_dropout", x(2, 3))
case("dropout2d", x(1, 2, 2, 2), 0.5, False)
case("dropout3d", x(1, 2, 2, 1, 2), 0.3, False)
case("dropout3d", x(2, 2, 1, 2), 0.3, False)

# Embeddings.
case("embedding", ints([[0, 2], [1, 1]]), w(3, 2))
case("embedding", ints([0, 2, 1, 2]), w(3, 2), -1)
case("embedding", ints([0, 2, 1]), w(3, 2), padding_idx=0)
case("embedding", ints([0, 2, 2]), x(3, 2, scale=6, grad=False), max_norm=1.5)
case("embedding", ints([0, 2, 2]), x(3, 2, scale=6, grad=False), None, 1.0, 1.0)
case("embedding", ints([0, 2, 2]), w(3, 2), scale_grad_by_freq=True)
case("embedding_bag", ints([[0, 2], [1, 1]]), w(3, 2))
case("embedding_bag", ints([0, 2, 1, 1]), w(3, 2), ints([0, 3]), mode="sum")
case("embedding_bag", ints([0, 2, 1, 1]), w(3, 2), ints([0, 3]), mode="max")
case("embedding_bag", ints([0, 2, 1, 1]), w(3, 2), ints([0, 3, 4]), include_last_offset=True)
case("embedding_bag", ints([[0, 2], [1, 1]]), w(3, 2), mode="sum", per_sample_weights=y(2, 2))
case("embedding_bag", ints([0, 2, 1, 1]), w(3, 2), ints([0, 2]), padding_idx=1)
case("embedding_bag", ints([[0, 2], [1, 1]]), x(3, 2, scale=6, grad=False), None, 1.0)
case("one_hot", ints([0, 2, 1]))
case("one_hot", ints([0, 2, 1]), 4)

# Normalization.
case("batch_norm", x(3, 2), None, None, training=True)
case("batch_norm", x(3, 2), y(2, grad=False), y(2, scale=1, shift=2, grad=False))
case("batch_norm", x(3, 2), y(2, grad=False), y(2, scale=1, shift=2, grad=False), w(2), y(2), False, 0.2, 0.01)
case("instance_norm", x(2, 2, 3))
case("instance_norm", x(2, 2, 3), None, None, w(2), y(2))
case("instance_norm", x(2, 2, 3), y(2, grad=False), y(2, scale=1, shift=2, grad=False), use_input_stats=False)
case("layer_norm", x(2, 3), [3])
case("layer_norm", x(2, 3), [2, 3], w(2, 3), y(2, 3), 0.1)
case("group_norm", x(2, 4), 2)
case("group_norm", x(2, 4, 2), 2, w(4), y(4), 0.01)
case("rms_norm", x(2, 3), [3])
case("rms_norm", x(2, 3), [3], w(3), 0.1)
case("local_response_norm", x(1, 4, 3), 3)
case("local_response_norm", x(1, 4, 2, 2), 2, 0.01, 0.5, 2.0)
case("normalize", x(2, 3))
case("normalize", x(2, 3), 1.0, 0)
case("normalize", x(2, 3), p=3.0, dim=-1, eps=0.5)

# Losses.
POINTWISE = ("l1_loss", "mse_loss", "smooth_l1_loss", "huber_loss")
for name in POINTWISE:
    case(name, x(2, 3), y(2, 3))
    case(name, x(2, 3), y(2, 3), reduction="sum")
    case(name, x(2, 3), y(2, 3), reduction="none")
for name in ("l1_loss", "mse_loss", "huber_loss"):
    for reduction in ("none", "mean", "sum"):
        case(name, x(2, 3), y(2, 3), weight=w(2, 3), reduction=reduction)
case("mse_loss", x(2, 3), y(3))
case("mse_loss", x(4), y(4), False)
case("mse_loss", x(4), y(4), None, False)
case("mse_loss", x(4), y(4), True, True)
case("smooth_l1_loss", x(4), y(4), beta=0.5)
case("smooth_l1_loss", x(4), y(4), beta=0.0)
case("huber_loss", x(4), y(4), "sum", 0.5)
case("cross_entropy", x(3, 4), ints([0, 3, 1]))
case("cross_entropy", x(3, 4), ints([0, 3, 1]), x(4, scale=1, shift=1, grad=False), None, 3)
case("cross_entropy", x(3, 4), ints([0, -100, 1]), reduction="sum", label_smoothing=0.1)
case("cross_entropy", x(3, 4), y(3, 4), label_smoothing=0.1)
case("nll_loss", x(3, 4), ints([0, 3, 1]))
case("nll_loss", x(2, 3, 2), ints([[0, 2], [1, 1]]), None, None, 1, None, "none")
case("binary_cross_entropy", x(4, scale=0.9, shift=0.5), y(4, scale=0.9, shift=0.5, grad=False))
case("binary_cross_entropy", x(2, 2, scale=0.9, shift=0.5), y(2, 2, scale=1, shift=0.5, grad=False), x(2, scale=1, shift=1, grad=False), reduction="none")
case("binary_cross_entropy_with_logits", x(4), y(4, scale=0.9, shift=0.5, grad=False))
case("binary_cross_entropy_with_logits", x(4), y(4, scale=0.9, shift=0.5, grad=False), x(4, scale=1, shift=1, grad=False), pos_weight=y(4, scale=1, shift=2, grad=False), reduction="sum")
case("kl_div", x(2, 3), y(2, 3, scale=0.5, shift=0.5))
case("kl_div", x(2, 3), y(2, 3, scale=0.5, shift=0.5), reduction="batchmean")
case("kl_div", x(2, 3), y(2, 3, scale=0.5), reduction="sum", log_target=True)
case("poisson_nll_loss", x(4), y(4, scale=1, shift=1, grad=False))
case("poisson_nll_loss", x(4, scale=1, shift=2), y(4, scale=4, shift=3, grad=False), False, True)
case("poisson_nll_loss", x(4, scale=1, shift=2), y(4, grad=False), log_input=False, eps=0.1, reduction="none")
case("gaussian_nll_loss", x(2, 3), y(2, 3, grad=False), x(2, 3, scale=2, shift=2, step=617))
case("gaussian_nll_loss", x(2, 3), y(2, 3, grad=False), x(2, 1, scale=1, shift=1, step=617), True)
case("gaussian_nll_loss", x(2, 3), y(2, 3, grad=False), x(2, scale=1, shift=1, step=617), reduction="none")
case("gaussian_nll_loss", x(4), y(4, grad=False), 0.5, full=True, reduction="sum")
case("gaussian_nll_loss", x(4), y(4, grad=False), x(4, scale=1, shift=0.5, step=617), eps=0.4)
case("margin_ranking_loss", x(4), y(4), ints([1, -1, 1, -1], "float32"))
case("margin_ranking_loss", x(4), y(4), ints([1, -1, 1, -1], "float32"), 0.5, reduction="sum")
case("hinge_embedding_loss", x(4), ints([1, -1, 1, -1], "float32"))
case("hinge_embedding_loss", x(4), ints([1, -1, 1, -1], "float32"), 2.0, reduction="none")
case("multilabel_margin_loss", x(2, 3), ints([[0, 2, -1], [1, -1, 0]]))
case("soft_margin_loss", x(4), ints([1, -1, 1, -1], "float32"))
case("soft_margin_loss", x(4), ints([1, -1, 1, -1], "float32"), None, None, "sum")
case("multilabel_soft_margin_loss", x(2, 3), ints([[1, 0, 1], [0, 1, 1]], "float32"))
case("multilabel_soft_margin_loss", x(2, 3), ints([[1, 0, 1], [0, 1, 1]], "float32"), w(3), reduction="none")
case("cosine_embedding_loss", x(2, 3), y(2, 3), ints([1, -1], "float32"))
case("cosine_embedding_loss", x(2, 3), y(2, 3), ints([1, -1], "float32"), 0.25, reduction="sum")
case("multi_margin_loss", x(2, 3), ints([0, 2]))
case("multi_margin_loss", x(2, 3), ints([0, 2]), 2, 0.5, x(3, scale=1, shift=1, grad=False), reduction="sum")
case("triplet_margin_loss", x(2, 3), y(2, 3), w(2, 3))
case("triplet_margin_loss", x(2, 3), y(2, 3), w(2, 3), 2.0, 1.0, swap=True, reduction="none")
case("triplet_margin_with_distance_loss", x(2, 3), y(2, 3), w(2, 3))
case("triplet_margin_with_distance_loss", x(2, 3), y(2, 3), w(2, 3), margin=3.0, swap=True, reduction="sum")
for lengths in ((ints([4, 3]), ints([2, 1])), ([4, 3], [2, 1])):
    case("ctc_loss", x(4, 2, 3, scale=1, shift=-2), ints([[1, 2], [2, 1]]), *lengths)
case("ctc_loss", x(4, 2, 3, scale=1, shift=-2), ints([[0, 1], [1, 0]]), ints([4, 3]), ints([2, 1]), 2, "sum", True)

# Distances and products.
case("cosine_similarity", x(2, 3), y(2, 3))
case("cosine_similarity", x(2, 3), y(2, 3), 0)
case("pairwise_distance", x(2, 3), y(2, 3))
case("pairwise_distance", x(2, 3), y(2, 3), 1.0, keepdim=True)
case("pdist", x(3, 2))
case("linear", x(2, 3), w(2, 3), y(2))
case("bilinear", x(2, 2), y(2, 3), w(2, 2, 3), y(2))
case("grouped_mm", x(4, 8), w(2, 8, 8), offs=ints([1, 4], "int32"))
case("scaled_dot_product_attention", x(1, 2, 3, 2), y(1, 2, 3, 2), w(1, 2, 3, 2))
case("scaled_dot_product_attention", x(1, 2, 3, 2), y(1, 2, 3, 2), w(1, 2, 3, 2), is_causal=True, scale=0.5)

# Convolutions.
for d, shape in ((1, (4,)), (2, (3, 4)), (3, (2, 3, 3))):
    kernel = (2,) * d
    case(f"conv{d}d", x(1, 2, *shape), w(2, 2, *kernel), y(2))
    case(f"conv{d}d", x(1, 2, *shape), w(2, 1, *kernel), None, 2, 1, groups=2)
    case(f"conv_transpose{d}d", x(1, 2, *shape), w(2, 1, *kernel), y(1), 2, 1, 1)
case("conv2d", x(1, 1, 4, 4), w(1, 1, 3, 3), padding="same")
case("conv_tbc", x(4, 1, 2), w(2, 2, 2), y(2), 1)
case("unfold", x(1, 2, 4, 4), 3, 1, 1)
case("unfold", x(1, 1, 4, 5), [2, 3], [1, 2], [0, 1], [2, 1])
case("fold", x(1, 8, 4), [3, 3], 2)
case("fold", x(1, 4, 4), [4, 4], 2, 1, 0, 2)
case("pixel_shuffle", x(1, 4, 2, 2), 2)
case("pixel_unshuffle", x(1, 1, 2, 4), 2)
case("channel_shuffle", x(1, 4, 1, 2), 2)
case("native_channel_shuffle", x(1, 4, 1, 2, grad=False), 2)
case("pad", x(2, 3), [1, 2])
case("pad", x(1, 2, 3), [1, 1], "reflect")
case("pad", x(2, 3), [1, 0], "constant", 2.5)

# Pools.
for d, shape in ((1, (6,)), (2, (4, 5)), (3, (3, 4, 4))):
    case(f"avg_pool{d}d", x(1, 1, *shape), 2)
    case(f"avg_pool{d}d", x(1, 1, *shape), 3, 2, 1, True, False)
    for name in (f"max_pool{d}d", f"max_pool{d}d_with_indices"):
        case(name, x(1, 1, *shape), 2)
        case(name, x(1, 1, *shape), 3, 2, padding=1, ceil_mode=True)
    case(f"max_pool{d}d", x(1, 1, *shape), 2, 1, 0, 1, False, True)
    case(f"max_pool{d}d", x(1, 1, *shape), 2, return_indices=True)
    case(f"lp_pool{d}d", x(1, 1, *shape, scale=1, shift=2), 2.0, 2)
    case(f"lp_pool{d}d", x(1, 1, *shape, scale=1, shift=2), 3.0, 2, 1, True)
    case(f"adaptive_avg_pool{d}d", x(1, 1, *shape), 2)
    for name in (f"adaptive_max_pool{d}d", f"adaptive_max_pool{d}d_with_indices"):
        case(name, x(1, 1, *shape), 2)
    case(f"adaptive_max_pool{d}d", x(1, 1, *shape), [3] * d, True)
    size = [2, 2, 2][:d]
    pooled = F.max_pool1d if d == 1 else F.max_pool2d if d == 2 else F.max_pool3d
    indices = pooled(x(1, 1, *(4,) * d).tensor, 2, return_indices=True)[1].tolist()
    case(f"max_unpool{d}d", y(1, 1, *size), ints(indices), 2)
    case(f"max_unpool{d}d", y(1, 1, *size), ints(indices), 2, None, 0, [5] * d)
case("avg_pool2d", x(1, 1, 4, 4), 2, divisor_override=3)
case("adaptive_avg_pool2d", x(1, 1, 3, 4), [None, 2])
case("adaptive_avg_pool3d", x(1, 1, 2, 3, 4), [None, None, 2])
case("adaptive_max_pool2d", x(1, 1, 3, 4), [None, 2])
for name in ("fractional_max_pool2d", "fractional_max_pool2d_with_indices"):
    case(name, x(1, 1, 5, 5), 2, [3, 3], _random_samples=numbers([[[0.25, 0.75]]]))
    case(name, x(1, 1, 5, 5), 2, output_ratio=[0.5, 0.6], _random_samples=numbers([[[0.25, 0.75]]]))
case("fractional_max_pool2d", x(1, 1, 5, 5), 2, 3, None, True, numbers([[[0.25, 0.75]]]))
for name in ("fractional_max_pool3d", "fractional_max_pool3d_with_indices"):
    case(name, x(1, 1, 4, 4, 4), 2, 2, _random_samples=numbers([[[0.25, 0.75, 0.5]]]))

# Images.
image, signal, volume = lambda: x(1, 1, 3, 4), lambda: x(1, 2, 4), lambda: x(1, 1, 2, 2, 3)
for mode in ("nearest", "nearest-exact", "area"):
    for make in (signal, image, volume):
        case("interpolate", make(), scale_factor=2, mode=mode)
        case("interpolate", make(), 3, mode=mode)
for make, mode in ((signal, "linear"), (image, "bilinear"), (image, "bicubic"), (volume, "trilinear")):
    case("interpolate", make(), 3, None, mode)
    case("interpolate", make(), scale_factor=1.5, mode=mode)
    case("interpolate", make(), scale_factor=1.3, mode=mode, recompute_scale_factor=True)
    case("interpolate", make(), 5, None, mode, True)
for mode in ("bilinear", "bicubic"):
    case("interpolate", image(), [2, 2], mode=mode, antialias=True)
case("interpolate", image(), scale_factor=[2, 1.5])
case("interpolate", image(), scale_factor=1.3, recompute_scale_factor=True)
case("interpolate", image(), scale_factor=0.7, mode="area")
case("upsample", image(), 5)
case("upsample", image(), None, 2, "bilinear", True)
case("upsample_nearest", image(), 5)
case("upsample_nearest", image(), scale_factor=2)
case("upsample_bilinear", image(), 5)
case("upsample_bilinear", image(), scale_factor=2)
for mode in ("bilinear", "nearest", "bicubic"):
    case("grid_sample", image(), x(1, 2, 2, 2, scale=2.4, step=389), mode)
for padding_mode in ("zeros", "border", "reflection"):
    case("grid_sample", image(), x(1, 2, 2, 2, scale=2.4, step=389), padding_mode=padding_mode, align_corners=True)
case("affine_grid", x(1, 2, 3), [1, 1, 2, 2])
case("affine_grid", x(1, 3, 4), [1, 1, 1, 2, 2], True)

# Attention: dimension 4, two heads, in and out projections.
SHARED = dict(embed_dim_to_check=4, num_heads=2, in_proj_weight=w(12, 4), in_proj_bias=y(12), bias_k=None,
              bias_v=None, add_zero_attn=False, dropout_p=0.0, out_proj_weight=y(4, 4), out_proj_bias=w(4))


def attention(query, key, value, **changes):
    shared = {name: Given(value.tensor.detach().requires_grad_(), **value.data)
              if isinstance(value, Given) else value for name, value in SHARED.items()}
    case("multi_head_attention_forward", query, key, value, **{**shared, **changes})


attention(x(3, 2, 4), y(2, 2, 4), w(2, 2, 4))
attention(x(3, 4), y(2, 4), w(2, 4))
attention(x(3, 2, 4), y(2, 2, 4), w(2, 2, 4), need_weights=False)
attention(x(3, 2, 4), y(2, 2, 4), w(2, 2, 4), average_attn_weights=False, in_proj_bias=None)
attention(x(3, 2, 4), y(2, 2, 4), w(2, 2, 4), bias_k=w(1, 1, 4), bias_v=y(1, 1, 4), add_zero_attn=True,
          key_padding_mask=bools([[False, True], [False, False]]))
attention(x(2, 1, 4), y(2, 1, 4), w(2, 1, 4), attn_mask=bools([[False, True], [False, False]]), need_weights=False,
          is_causal=True)
attention(x(2, 2, 4), y(2, 2, 4), w(2, 2, 4), attn_mask=y(4, 2, 2), key_padding_mask=bools([[False, True], [False, False]]))
attention(x(2, 2, 4), y(2, 2, 4), w(2, 2, 4), attn_mask=y(4, 2, 2), need_weights=False)
attention(x(3, 2, 4), y(2, 2, 3), w(2, 2, 5), in_proj_weight=None, use_separate_proj_weight=True, q_proj_weight=x(4, 4),
          k_proj_weight=y(4, 3), v_proj_weight=w(4, 5))
attention(x(3, 2, 4), y(2, 2, 4), w(2, 2, 4), static_k=x(4, 5, 2), static_v=y(4, 5, 2))

# torch's own.
case("norm", x(2, 3))
case("norm", x(2, 3), "fro")
case("norm", x(2, 3), "fro", [0, 1], True)
case("norm", x(2, 3), "nuc")
case("norm", x(2, 3), 1, 0)
case("norm", x(2, 3), 3, [0, 1], True)
case("norm", x(2, 3), p=float(2), dim=1)
case("stft", x(16), 8, return_complex=True)
case("stft", x(1, 16), 8, 4, 6, x(6, scale=1, shift=1, grad=False), return_complex=True)
case("stft", x(16), 8, 4, center=False, onesided=False, return_complex=True)
case("unique", ints([3, 1, 3, 2]))
case("unique", ints([3, 1, 3, 2]), True, True)
case("unique", ints([3, 1, 3, 2]), return_counts=True)
case("unique", ints([3, 1, 3, 2]), True, True, True)
case("unique", ints([[1, 2], [0, 1], [1, 2]]), dim=0, return_inverse=True)
case("unique_consecutive", ints([1, 1, 2, 1]))
case("unique_consecutive", ints([1, 1, 2, 1]), True, True)
case("add", x(3), y(3), alpha=2)
case("add", x(3), 2, y(3))
case("add", x(3), 2.5)
case("sub", x(3), 2, y(3))
case("sub", x(3), y(3))

# What was no function of its own, and those of operators with lists of tensors.
case("full", [2], 3)
case("full", [2], 2.5)

names = [name for name in sorted(dir(F)) if not name.startswith("_") and callable(getattr(F, name))
         and not inspect.isclass(getattr(F, name)) and name not in ("Callable", "Optional")]
signatures = {name: written(signature(name)) for name in dict.fromkeys(name for name, _, _ in CASES) if signature(name)}


def text(value):
    return json.dumps(value, separators=(",", ":"))


print(f'{{"names":{text(names)},\n"signatures":{text(signatures)},\n"cases":[')
print(",\n".join(text(run(*parts)) for parts in CASES))
print("]}")
