"""Arguments for each function of torch.nn.functional, by PyTorch's names."""

from values import tensor

FLOATS = ["float32", "float32", "float32", "float64"]


def sizes(chance, dims, low=1, high=5):
    return [chance.randint(low, high) for _ in range(dims)]


def given(shape, k=1, low=-2, high=2, dtype="float32"):
    """A tensor that wants a gradient."""
    return tensor(shape, k, low, high, dtype, grad=True)


def anything(chance, low=-3, high=3):
    x = given(sizes(chance, chance.randint(0, 4)), 1, low, high, chance.choice(FLOATS))
    if len(x["shape"]) > 1 and chance.random() < 0.2:
        x["permute"] = chance.sample(range(len(x["shape"])), len(x["shape"]))
    return x


def like(x, k=2, low=-2, high=2, grad=True):
    more = {"permute": x["permute"]} if "permute" in x else {}
    return tensor(x["shape"], k, low, high, x["dtype"], **more, **({"grad": True} if grad else {}))


def elementwise(low=-3, high=3, **options):
    def draw(chance):
        return {"input": anything(chance, low, high),
                **{name: chance.choice(choices) for name, choices in options.items()}}
    return draw


IN_PLACE = {"inplace": [True, False]}


def per_dim(chance, dims, choices):
    return chance.choice(choices) if chance.random() < 0.5 else [chance.choice(choices) for _ in range(dims)]


def image(chance, dims, channels=None, low=3, high=7):
    lead = [chance.randint(1, 2), channels or chance.randint(1, 3)]
    if chance.random() < 0.15:
        lead = lead[1:]
    return given([*lead, *sizes(chance, dims, low, high)])


def convolution(dims, transposed=False):
    def draw(chance):
        groups = chance.choice([1, 1, 2])
        inward, out = groups * chance.randint(1, 2), groups * chance.randint(1, 2)
        kernel = sizes(chance, dims, 1, 3)
        weight = [inward, out // groups] if transposed else [out, inward // groups]
        padding = per_dim(chance, dims, [0, 1, 2])
        args = {"input": image(chance, dims, inward), "weight": given([*weight, *kernel], 2),
                "bias": given([out], 3), "stride": per_dim(chance, dims, [1, 2]), "padding": padding,
                "groups": groups, "dilation": per_dim(chance, dims, [1, 1, 2])}
        if transposed:
            return {**args, "output_padding": per_dim(chance, dims, [0, 0, 1])}
        return {**args, "padding": chance.choice([padding, padding, "same", "valid"])}
    return draw


def conv_tbc(chance):
    return {"input": given([4, 2, 3]), "weight": given([2, 3, 2], 2), "bias": given([2], 3),
            "pad": chance.choice([0, 1])}


def pool(dims, **options):
    def draw(chance):
        args = {"input": image(chance, dims), "kernel_size": per_dim(chance, dims, [1, 2, 3]),
                "stride": per_dim(chance, dims, [1, 2]), "padding": per_dim(chance, dims, [0, 1]),
                "ceil_mode": chance.choice([True, False])}
        return {**args, **{name: chance.choice(choices) for name, choices in options.items()}}
    return draw


def lp_pool(dims):
    def draw(chance):
        return {"input": image(chance, dims), "norm_type": chance.choice([1, 2, 3.0]),
                "kernel_size": per_dim(chance, dims, [1, 2]) if dims > 1 else chance.choice([1, 2]),
                "stride": chance.choice([1, 2]), "ceil_mode": chance.choice([True, False])}
    return draw


def adaptive(dims, **options):
    def draw(chance):
        return {"input": image(chance, dims), "output_size": per_dim(chance, dims, [1, 2, 3]),
                **{name: chance.choice(choices) for name, choices in options.items()}}
    return draw


def unpool(dims):
    def draw(chance):
        shape = [1, 1, *[2] * dims]  # of so few elements no two have one index
        return {"input": given(shape), "indices": tensor(shape, 0, 0, 2 ** dims, "int64"),
                "kernel_size": per_dim(chance, dims, [2]), "stride": per_dim(chance, dims, [2, 3])}
    return draw


def softmax(chance):
    x = anything(chance)
    dims = max(1, len(x["shape"]))
    return {"input": x, "dim": chance.randint(-dims, dims - 1), "dtype": chance.choice(["float64", "float32"])}


def glu(chance):
    shape = sizes(chance, chance.randint(1, 3))
    dim = chance.randrange(len(shape))
    shape[dim] *= 2
    return {"input": given(shape), "dim": dim}


def pair(low=-2, high=2, target=(-2, 2), reduction=True, **options):
    """A loss of an input and a target of its shape."""
    def draw(chance):
        x = anything(chance, low, high)
        args = {"input": x, "target": like(x, 2, *target, grad=False)}
        if reduction:
            args["reduction"] = chance.choice(["none", "mean", "sum"])
        return {**args, **{name: chance.choice(choices) for name, choices in options.items()}}
    return draw


def weighted(draw_pair, low=0.1, high=2, name="weight"):
    def draw(chance):
        args = draw_pair(chance)
        return {**args, name: like(args["input"], 3, low, high, grad=False)}
    return draw


def with_logits(chance):
    args = pair(target=(0, 1))(chance)
    args["weight"] = like(args["input"], 3, 0.1, 2, grad=False)
    args["pos_weight"] = tensor(args["input"]["shape"][-1:], 4, 0.1, 2, args["input"]["dtype"])
    return args


def signs(shape, k, dtype="float32"):
    """-1 and 1."""
    return tensor(shape, k, -1, 3, "int64") if dtype == "int64" else tensor(shape, k, 1, 1.5, dtype)


def classes(chance):
    n, c, extra = chance.randint(1, 5), chance.randint(2, 5), sizes(chance, chance.choice([0, 0, 1, 2]), 1, 3)
    args = {"input": given([n, c, *extra]), "target": tensor([n, *extra], 2, 0, c, "int64"),
            "weight": tensor([c], 3, 0.1, 2), "ignore_index": chance.choice([-100, 0, 1]),
            "reduction": chance.choice(["none", "mean", "sum"]), "label_smoothing": chance.choice([0.0, 0.2])}
    if chance.random() < 0.15:  # one sample alone
        args["input"], args["target"] = given([c]), tensor([], 2, 0, c, "int64")
    return args


def cross_entropy(chance):
    args = classes(chance)
    if chance.random() < 0.2:
        args["target"] = tensor(args["input"]["shape"], 2, 0, 1)
        args["ignore_index"] = None
    return args


def multi_margin(chance):
    n, c = sizes(chance, 2, 2, 5)
    return {"input": given([n, c]), "target": tensor([n], 2, 0, c, "int64"), "p": chance.choice([1, 2]),
            "margin": chance.choice([1.0, 0.5]), "weight": tensor([c], 3, 0.1, 2),
            "reduction": chance.choice(["none", "mean", "sum"])}


def multilabel_margin(chance):
    n, c = sizes(chance, 2, 2, 5)
    return {"input": given([n, c]), "target": tensor([n, c], 2, -1, c, "int64"),
            "reduction": chance.choice(["none", "mean", "sum"])}


def multilabel_soft_margin(chance):
    n, c = sizes(chance, 2, 2, 5)
    return {"input": given([n, c]), "target": tensor([n, c], 2, 0, 1), "weight": tensor([c], 3, 0.1, 2),
            "reduction": chance.choice(["none", "mean", "sum"])}


def three(names, target, **options):
    """Losses of two inputs and what they should be to each other."""
    def draw(chance):
        shape = sizes(chance, 2)
        args = {names[0]: given(shape), names[1]: given(shape, 2)}
        args[names[2]] = target(chance, shape)
        args.update({name: chance.choice(choices) for name, choices in options.items()})
        return {**args, "reduction": chance.choice(["none", "mean", "sum"])}
    return draw


def gaussian_nll(chance):
    x = anything(chance)
    return {"input": x, "target": like(x, 2), "var": like(x, 3, 0.1, 2), "full": chance.choice([True, False]),
            "eps": chance.choice([1e-6, 1e-2]), "reduction": chance.choice(["none", "mean", "sum"])}


def ctc(chance):
    length, n, c, goal = chance.randint(4, 6), chance.randint(1, 3), 4, 2
    return {"log_probs": given([length, n, c], 1, -4, -0.5), "targets": tensor([n, goal], 2, 1, c, "int64"),
            "input_lengths": tensor([n], 0, length, length + 1, "int64"),
            "target_lengths": tensor([n], 0, goal, goal + 1, "int64"), "blank": 0,
            "reduction": chance.choice(["none", "mean", "sum"]), "zero_infinity": chance.choice([True, False])}


def embedding(chance):
    rows, width = chance.randint(3, 9), chance.randint(1, 4)
    return {"input": tensor(sizes(chance, chance.randint(1, 2)), 1, 0, rows, "int64"),
            "weight": given([rows, width], 2), "padding_idx": chance.choice([0, -1, 2]),
            "scale_grad_by_freq": chance.choice([True, False]), "norm_type": chance.choice([2.0, 1.0])}


def embedding_bag(chance):
    rows, width, n = chance.randint(3, 9), chance.randint(1, 4), chance.randint(2, 5)
    args = {"weight": given([rows, width], 2), "mode": chance.choice(["mean", "sum", "max"]),
            "padding_idx": chance.choice([None, 0, -1]), "norm_type": 2.0}
    if chance.random() < 0.5:
        return {**args, "input": tensor([n, 3], 1, 0, rows, "int64")}
    return {**args, "input": tensor([n], 1, 0, rows, "int64"), "offsets": tensor([1], 0, 0, 1, "int64"),
            "include_last_offset": False}


def norm(running=False):
    def draw(chance):
        c = chance.randint(1, 4)
        x = given([chance.randint(2, 3), c, *sizes(chance, chance.randint(1, 2), 2, 4)])
        args = {"input": x, "weight": given([c], 2), "bias": given([c], 3), "eps": chance.choice([1e-5, 1e-2]),
                "running_mean": tensor([c], 4), "running_var": tensor([c], 5, 0.5, 2),
                "momentum": chance.choice([0.1, 0.5])}
        return args
    return draw


def batch_norm(chance):
    return {**norm()(chance), "training": chance.choice([True, False])}


def instance_norm(chance):
    return {**norm()(chance), "use_input_stats": True}


def group_norm(chance):
    groups = chance.randint(1, 3)
    c = groups * chance.randint(1, 2)
    return {"input": given([2, c, *sizes(chance, chance.randint(0, 2))]), "num_groups": groups,
            "weight": given([c], 2), "bias": given([c], 3), "eps": chance.choice([1e-5, 1e-2])}


def layer_norm(chance):
    shape = sizes(chance, chance.randint(1, 2), 2, 5)
    return {"input": given([*sizes(chance, chance.randint(0, 2)), *shape]), "normalized_shape": shape,
            "weight": given(shape, 2), "bias": given(shape, 3), "eps": chance.choice([1e-5, 1e-2])}


def linear(chance):
    width, out = chance.randint(1, 6), chance.randint(1, 6)
    return {"input": given([*sizes(chance, chance.randint(0, 3)), width]), "weight": given([out, width], 2),
            "bias": given([out], 3)}


def bilinear(chance):
    n, a, b, out = sizes(chance, 4)
    return {"input1": given([n, a]), "input2": given([n, b], 2), "weight": given([out, a, b], 3),
            "bias": given([out], 4)}


def interpolate(chance):
    mode, dims = chance.choice([("nearest", 1), ("nearest", 2), ("nearest", 3), ("linear", 1), ("bilinear", 2),
                                ("trilinear", 3), ("bicubic", 2), ("area", 1), ("area", 2), ("area", 3),
                                ("nearest-exact", 2), ("bilinear", 3)])
    args = {"input": given([1, chance.randint(1, 2), *sizes(chance, dims, 2, 5)]), "mode": mode}
    if chance.random() < 0.5:
        args["size"] = per_dim(chance, dims, [2, 3, 7])
    else:
        args["scale_factor"] = per_dim(chance, dims, [2, 0.5, 1.5])
        args["recompute_scale_factor"] = chance.choice([True, False])
    if "linear" in mode or mode == "bicubic":
        args["align_corners"] = chance.choice([True, False])
        args["antialias"] = chance.random() < 0.2
    return args


def grid_sample(chance):
    dims = chance.choice([2, 2, 3])
    n = chance.randint(1, 2)
    return {"input": given([n, 2, *sizes(chance, dims, 2, 4)]),
            "grid": given([n, *sizes(chance, dims, 2, 4), dims], 2, -1.2, 1.2),
            "mode": chance.choice(["bilinear", "nearest", "bicubic"]),
            "padding_mode": chance.choice(["zeros", "border", "reflection"]),
            "align_corners": chance.choice([True, False])}


def affine_grid(chance):
    dims = chance.choice([2, 3])
    n = chance.randint(1, 2)
    return {"theta": given([n, dims, dims + 1]), "size": [n, 2, *sizes(chance, dims, 2, 4)],
            "align_corners": chance.choice([True, False])}


def pad(chance):
    x = given([2, 2, *sizes(chance, chance.randint(1, 3), 3, 5)])
    mode = chance.choice(["constant", "reflect", "replicate", "circular"])
    dims = len(x["shape"]) - 2
    count = 2 * chance.randint(1, dims) if mode == "constant" else 2 * dims
    args = {"input": x, "pad": [chance.randint(-1 if mode == "constant" else 0, 2) for _ in range(count)], "mode": mode}
    if mode == "constant":
        args["value"] = chance.choice([0.0, 1.5])
    return args


def fold(chance):
    kernel, out = 2, [4, 5]
    return {"input": given([2, 2 * kernel * kernel, 12]), "output_size": out, "kernel_size": kernel,
            "dilation": 1, "padding": 0, "stride": 1}


def unfold(chance):
    return {"input": given([2, 2, *sizes(chance, 2, 4, 6)]), "kernel_size": per_dim(chance, 2, [1, 2, 3]),
            "dilation": 1, "padding": per_dim(chance, 2, [0, 1]), "stride": per_dim(chance, 2, [1, 2])}


def attention(chance):
    n, heads, length, keys, width = sizes(chance, 5, 1, 4)
    args = {"query": given([n, heads, length, width]), "key": given([n, heads, keys, width], 2),
            "value": given([n, heads, keys, width], 3), "dropout_p": 0.0, "scale": chance.choice([None, 0.5])}
    if chance.random() < 0.5:
        args["is_causal"] = chance.choice([True, False])
    else:
        args["attn_mask"] = tensor([length, keys], 4, -1, 1, chance.choice(["float32"]))
    return args


def distance(chance):
    shape = sizes(chance, chance.randint(1, 3))
    return {"x1": given(shape), "x2": given(shape, 2), "p": chance.choice([1.0, 2.0, 3.0]),
            "eps": chance.choice([1e-6, 1e-8]), "keepdim": chance.choice([True, False])}


def similarity(chance):
    shape = sizes(chance, chance.randint(1, 3))
    dim = chance.randrange(-len(shape), len(shape))
    return {"x1": given(shape), "x2": given(shape, 2), "dim": dim, "eps": chance.choice([1e-8, 1e-3])}


def normalize(chance):
    x = anything(chance)
    dims = max(1, len(x["shape"]))
    return {"input": x, "p": chance.choice([1.0, 2.0, 3]), "dim": chance.randint(-dims, dims - 1),
            "eps": chance.choice([1e-12, 1e-2])}


def channels(name, factor, unshuffle=False):
    def draw(chance):
        c, h, w = chance.randint(1, 2), *sizes(chance, 2, 1, 3)
        shape = [1, c, h * factor, w * factor] if unshuffle else [1, c * factor * factor, h, w]
        return {"input": given(shape), name: factor}
    return draw


def local_response_norm(chance):
    return {"input": given([2, chance.randint(2, 5), *sizes(chance, chance.randint(1, 2))]),
            "size": chance.choice([1, 2, 3]), "alpha": chance.choice([1e-4, 0.1]),
            "beta": chance.choice([0.75, 0.5]), "k": chance.choice([1.0, 2.0])}


def dropout(dims=None):
    """Where it draws nothing; its defaults would."""
    def draw(chance):
        x = given([2, 3, *[4] * dims]) if dims else anything(chance)
        p, training = chance.choice([(0.0, True), (0.3, False), (0.5, False)])
        return {"input": x, "p": p, "training": training, "inplace": chance.choice([True, False]),
                "needed": ["p", "training"]}
    return draw


def one_hot(chance):
    return {"input": tensor(sizes(chance, chance.randint(0, 2)), 1, 0, 4, "int64"),
            "tensor": tensor(sizes(chance, chance.randint(0, 2)), 1, 0, 4, "int64"),
            "num_classes": chance.choice([-1, 4, 6])}


def prelu(chance):
    x = given([2, 3, *sizes(chance, chance.randint(0, 2))])
    return {"input": x, "weight": given([chance.choice([1, 3])], 2)}


def triplet(chance):
    shape = sizes(chance, 2, 2, 4)
    return {"anchor": given(shape), "positive": given(shape, 2), "negative": given(shape, 3),
            "margin": chance.choice([1.0, 0.5]), "p": chance.choice([2.0, 1.0]), "eps": 1e-6,
            "swap": chance.choice([True, False]), "reduction": chance.choice(["none", "mean", "sum"])}


def sign_target(chance, shape):
    return tensor(shape[:1], 5, 1, 1.5) if chance.random() < 0.5 else tensor(shape[:1], 5, -1.5, -1)


REDUCTIONS = ["none", "mean", "sum"]

GENERATORS = {
    **{"adaptive_avg_pool%dd" % d: adaptive(d) for d in (1, 2, 3)},
    **{"adaptive_max_pool%dd" % d: adaptive(d, return_indices=[True, False]) for d in (1, 2, 3)},
    **{"avg_pool%dd" % d: pool(d, count_include_pad=[True, False]) for d in (1, 2, 3)},
    **{"max_pool%dd" % d: pool(d, dilation=[1, 1, 2], return_indices=[True, False]) for d in (1, 2, 3)},
    **{"max_unpool%dd" % d: unpool(d) for d in (1, 2, 3)},
    **{"lp_pool%dd" % d: lp_pool(d) for d in (1, 2, 3)},
    **{"conv%dd" % d: convolution(d) for d in (1, 2, 3)},
    **{"conv_transpose%dd" % d: convolution(d, True) for d in (1, 2, 3)},
    **{"dropout%dd" % d: dropout(d) for d in (1, 2, 3)},
    "dropout": dropout(), "alpha_dropout": dropout(), "feature_alpha_dropout": dropout(2),
    "rrelu": elementwise(lower=[0.1], upper=[0.3], training=[False], **IN_PLACE),
    "conv_tbc": conv_tbc, "affine_grid": affine_grid, "batch_norm": batch_norm, "bilinear": bilinear,
    "binary_cross_entropy": weighted(pair(0.1, 0.9, (0, 1))),
    "binary_cross_entropy_with_logits": with_logits,
    "celu": elementwise(alpha=[1.0, 0.5], **IN_PLACE), "channel_shuffle": channels("groups", 2),
    "cosine_embedding_loss": three(["input1", "input2", "target"], sign_target, margin=[0.0, 0.3]),
    "cosine_similarity": similarity, "cross_entropy": cross_entropy, "ctc_loss": ctc,
    "elu": elementwise(alpha=[1.0, 0.5], **IN_PLACE), "embedding": embedding, "embedding_bag": embedding_bag,
    "fold": fold, "gaussian_nll_loss": gaussian_nll, "gelu": elementwise(approximate=["none", "tanh"]),
    "glu": glu, "grid_sample": grid_sample, "group_norm": group_norm,
    "hardshrink": elementwise(lambd=[0.5, 1.0]), "hardsigmoid": elementwise(**IN_PLACE),
    "hardswish": elementwise(**IN_PLACE),
    "hardtanh": elementwise(min_val=[-1.0, -0.5], max_val=[1.0, 2.0], **IN_PLACE),
    "hinge_embedding_loss": pair(target=(1, 1.5), margin=[1.0, 0.5]),
    "huber_loss": pair(delta=[1.0, 0.5]), "instance_norm": instance_norm, "interpolate": interpolate,
    "kl_div": pair(-3, -0.1, (0.1, 1), log_target=[True, False]), "l1_loss": pair(), "layer_norm": layer_norm,
    "leaky_relu": elementwise(negative_slope=[0.01, 0.3], **IN_PLACE), "linear": linear,
    "local_response_norm": local_response_norm, "log_softmax": softmax, "logsigmoid": elementwise(),
    "margin_ranking_loss": three(["input1", "input2", "target"],
                                 lambda chance, shape: tensor(shape, 5, 1, 1.5), margin=[0.0, 0.3]),
    "mish": elementwise(**IN_PLACE), "mse_loss": pair(), "multi_margin_loss": multi_margin,
    "multilabel_margin_loss": multilabel_margin, "multilabel_soft_margin_loss": multilabel_soft_margin,
    "nll_loss": classes, "normalize": normalize, "one_hot": one_hot, "pad": pad, "pairwise_distance": distance,
    "pdist": lambda chance: {"input": given(sizes(chance, 2, 2, 4)), "p": chance.choice([2, 1, 3])},
    "pixel_shuffle": channels("upscale_factor", 2),
    "pixel_unshuffle": channels("downscale_factor", 2, True),
    "poisson_nll_loss": pair(0.1, 2, (0, 3), log_input=[True, False], full=[True, False], eps=[1e-8, 1e-3]),
    "prelu": prelu, "relu": elementwise(**IN_PLACE), "relu6": elementwise(**IN_PLACE),
    "rms_norm": layer_norm, "scaled_dot_product_attention": attention, "selu": elementwise(**IN_PLACE),
    "sigmoid": elementwise(), "silu": elementwise(**IN_PLACE), "smooth_l1_loss": pair(beta=[1.0, 0.5]),
    "soft_margin_loss": pair(target=(1, 1.5)), "softmax": softmax, "softmin": softmax,
    "softplus": elementwise(beta=[1, 2.0], threshold=[20, 1.0]), "softshrink": elementwise(lambd=[0.5, 1.0]),
    "softsign": elementwise(), "tanh": elementwise(), "tanhshrink": elementwise(),
    "threshold": elementwise(threshold=[0.5, -1.0], value=[0.0, 7.0], **IN_PLACE),
    "triplet_margin_loss": triplet, "unfold": unfold,
}
