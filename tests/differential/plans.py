"""Random jobs on random plans: every plan must give the bits of one stage, and those be what PyTorch
says. Cuts, schedules, stages per rank, recomputation, replicas, ZeRO, skips, ties, functions that
work in place or change the layout, random functions, all between threads of one process."""

import collections
import re

import training
import values
from compare import Verdict, compare, explanation, judge
from training import RUN
from values import tensor

ONE = ["1f1b", "gpipe", "zb_h1", "zb_h2", "auto"]
TWO = ["interleaved_1f1b", "looped_bfs", "interleaved_zb", "zbv", "v_half", "v_min", "dualpipev"]
PLANS = 3  # beside the one with one stage
OF_16_BITS = [{"type": "sgd", "lr": 0.05, "momentum": 0.9, "weight_decay": 0.1},
              {"type": "lion", "lr": 0.01, "weight_decay": 0.1}, {"type": "rmsprop", "lr": 0.01, "momentum": 0.5}]


def layer(kind, *positional, **named):
    return {"nn": {"type": kind, "positional": list(positional), "named": named}}


# What may stand anywhere: it keeps the shape.

def elementwise(chance):
    return chance.choice([
        layer("ReLU"), layer("ReLU", inplace=True), layer("GELU"), layer("Tanh"), layer("Sigmoid"),
        layer("SiLU", inplace=True), layer("LeakyReLU", 0.1, inplace=True), layer("Dropout", 0.3), layer("Identity"),
        {"chain": [["mul", 0.5]]}, {"chain": [["tanh"]]}, {"chain": [["relu"]]},
        {"chain": [["mul_", 0.5]]}, {"chain": [["add_", 1]]}, {"chain": [["relu_"]]}, {"chain": [["tanh_"]]},
        {"chain": [["sigmoid_"]]}, {"chain": [["clamp_", -0.5, 0.5]]}, {"chain": [["mul", 2], ["relu_"]]},
        {"draw": "dropout", "named": {"p": 0.4, "training": True}},
    ])


def vector_layer(chance, width):
    """A layer of rows of numbers, and what it makes of their width."""
    out = chance.randint(2, 9)
    # Of few elements a norm leaves little but rounding.
    norm = layer(chance.choice(["LayerNorm", "RMSNorm"]), width) if width > 3 else layer("Tanh")
    return chance.choice([
        (layer("Linear", width, out), out), (layer("Linear", width, out, bias=False), out),
        (layer("Linear", width, out), out), (norm, width), (norm, width),
        ({"own": width}, width), (elementwise(chance), width), (elementwise(chance), width),
        (layer("Sequential", layer("Linear", width, out)["nn"], layer("ReLU")["nn"]), out),
        (layer("Residual", layer("Linear", width, width)["nn"], layer("Tanh")["nn"]), width),
        ({"chain": [["view", -1, width, 1], ["transpose", 1, 2], ["squeeze", 1]]}, width),
        ({"chain": [["t"], ["contiguous"], ["t"]]}, width), ({"chain": [["flip", [1]]]}, width),
    ])


def with_skip(chance, made, key):
    """Some layers that keep the shape, with a value beside them."""
    inner = [elementwise(chance) for _ in range(chance.randint(1, 3))]
    return [*made, {"skip": key}, *inner, {"join": key, "how": "add"}]


def vectors(chance):
    width, rows = chance.randint(2, 8), chance.randint(1, 4)
    made, at = [], width
    for i in range(chance.randint(2, 8)):
        if chance.random() < 0.15:
            made = with_skip(chance, made, "key%d" % i)
        one, at = vector_layer(chance, at)
        made.append(one)
    classes = chance.randint(2, 5)
    made.append(layer("Linear", at, classes))
    if chance.random() < 0.1:
        made.append({"chain": [["log_softmax", 1]]})
        return made, {"type": "NLLLoss", "named": {"ignore_index": 1}}, tensor([rows, width], 1), \
            tensor([rows], 2, 0, classes, "int64")
    if chance.random() < 0.1:
        made.append({"chain": [["sigmoid"]]})
        return made, {"type": "BCELoss", "named": {}}, tensor([rows, width], 1), tensor([rows, classes], 2, 0, 1)
    loss, target = chance.choice([
        ({"type": "SmoothL1Loss", "named": {"beta": chance.choice([0.5, 1.0])}}, tensor([rows, classes], 2)),
        ({"type": "HuberLoss", "named": {"delta": chance.choice([0.5, 1.0])}}, tensor([rows, classes], 2)),
        ({"type": "PoissonNLLLoss", "named": {"full": chance.random() < 0.5}}, tensor([rows, classes], 2, 0, 3)),
        ({"type": "KLDivLoss", "named": {"reduction": "batchmean"}}, tensor([rows, classes], 2, 0, 1)),
        ({"type": "MSELoss", "named": {}}, tensor([rows, classes], 2)),
        ({"type": "L1Loss", "named": {}}, tensor([rows, classes], 2)),
        ({"type": "function"}, tensor([rows, classes], 2)),
        ({"type": "BCEWithLogitsLoss", "named": {}}, tensor([rows, classes], 2, 0, 1)),
        ({"type": "CrossEntropyLoss", "named": {}}, tensor([rows], 2, 0, classes, "int64")),
        ({"type": "CrossEntropyLoss", "named": {"ignore_index": 0}}, tensor([rows], 2, 0, classes, "int64")),
        ({"type": "CrossEntropyLoss", "named": {"label_smoothing": 0.1, "weight": [0.5 + 0.5 * c for c in range(classes)]}},
         tensor([rows], 2, 0, classes, "int64")),
    ])
    return made, loss, tensor([rows, width], 1), target


def several(chance):
    """Losses of several outputs, or of several targets."""
    width, rows, parts = chance.randint(2, 8), chance.randint(1, 4), chance.randint(2, 5)
    made = [layer("Linear", width, 7), elementwise(chance), layer("Linear", 7, 7), elementwise(chance)]
    kind = chance.choice(["GaussianNLLLoss", "CosineEmbeddingLoss", "TripletMarginLoss", "CTCLoss"])
    reduction = chance.choice(["mean", "mean", "sum"])
    given = tensor([rows, width], 1)
    if kind == "CTCLoss":
        length, words = chance.randint(5, 7), chance.randint(3, 5)
        made += [layer("Linear", 7, length * words),
                 {"chain": [["view", -1, length, words], ["transpose", 0, 1], ["log_softmax", 2]]}]
        return made, {"type": kind, "named": {"reduction": reduction}}, given, [
            tensor([rows, 2], 2, 1, words, "int64"), tensor([rows], 3, length, length + 1, "int64"),
            tensor([rows], 4, 1, 3, "int64")]
    named, count, target = {
        "GaussianNLLLoss": ({"full": chance.random() < 0.5}, 2, tensor([rows, parts], 2)),
        "CosineEmbeddingLoss": ({"margin": chance.choice([0.0, -0.2])}, 2, tensor([rows], 2, 0, 2, "int64", signs=True)),
        "TripletMarginLoss": ({"margin": chance.choice([1.0, 0.3]), "swap": chance.random() < 0.5}, 3,
                              tensor([rows], 2))}[kind]  # data has a target, which nobody looks at
    made += [layer("Linear", 7, count * parts),
             {"parts": count, "width": parts, "last": "exp" if kind == "GaussianNLLLoss" else None}]
    return made, {"type": kind, "named": {"reduction": reduction, **named}}, given, target


def images(chance):
    channels, size, rows = chance.randint(1, 3), chance.choice([4, 6]), chance.randint(1, 3)
    made, at = [], channels
    for i in range(chance.randint(1, 4)):
        out = chance.randint(1, 4)
        made.append(chance.choice([layer("Conv2d", at, out, 3, padding=1), layer("Conv2d", at, out, 1, bias=False)]))
        at = out
        made += [chance.choice([elementwise(chance), elementwise(chance), layer("GroupNorm", 1, at),
                                layer("BatchNorm2d", at), layer("AvgPool2d", 3, stride=1, padding=1),
                                layer("MaxPool2d", 3, stride=1, padding=1),
                                {"chain": [["transpose", 2, 3]]}, {"chain": [["permute", 0, 1, 3, 2], ["contiguous"]]},
                                {"chain": [["contiguous", training.CHANNELS_LAST]]},
                                {"chain": [["flip", [2]]]}, {"chain": [["roll", 1, 2]]}])
                 for _ in range(chance.randint(0, 2))]
        if chance.random() < 0.15:
            made = with_skip(chance, made, "key%d" % i)
    made += chance.choice([[layer("MaxPool2d", 2), layer("Flatten"), layer("Linear", at * (size // 2) ** 2, 3)],
                           [layer("AdaptiveAvgPool2d", 1), layer("Flatten"), layer("Linear", at, 3)],
                           [{"chain": [["flatten", 1]]}, layer("Linear", at * size * size, 3)]])
    return made, {"type": "CrossEntropyLoss", "named": {}}, tensor([rows, channels, size, size], 1), \
        tensor([rows], 2, 0, 3, "int64")


def tokens(chance):
    words, length, rows = chance.randint(5, 12), chance.randint(2, 5), chance.randint(1, 3)
    heads = chance.choice([1, 2])
    width = heads * chance.choice([4, 6])
    tied = chance.random() < 0.5
    embedding = layer("Embedding", words, width)
    made = [{**embedding, "tied": "words"} if tied else embedding]
    for _ in range(chance.randint(1, 3)):
        made.append(chance.choice([
            layer("TransformerEncoderLayer", width, heads, 8, chance.choice([0.0, 0.2]), batch_first=True,
                  causal=chance.choice([True, False]), norm_first=chance.choice([True, False])),
            layer("MultiheadAttention", width, heads, batch_first=True, causal=True), layer("LayerNorm", width),
            {"chain": [["transpose", 0, 1], ["contiguous"], ["transpose", 0, 1]]}, elementwise(chance),
            layer("Linear", width, width)]))
        if chance.random() < 0.15:
            made = with_skip(chance, made, "key%d" % len(made))
    made.append(layer("LayerNorm", width))
    if tied:
        head = chance.choice([{**layer("Linear", width, words, bias=False), "tied": "words"},
                              {**layer("Embedding", words, width), "tied": "words", "turned": True}])
        made.append(head)
    else:
        made.append(layer("Linear", width, words))
    made.append({"chain": [["transpose", 1, 2]]})  # the classes in dim 1
    return made, {"type": "CrossEntropyLoss", "named": {}}, tensor([rows, length], 1, 0, words, "int64"), \
        tensor([rows, length], 2, 0, words, "int64")


def has(made, *kinds):
    return any(one.get("nn", {}).get("type") in kinds for one in made)


def has_twin(job):
    """With batch_first PyTorch's attention gives its output in another layout, and what draws behind or
    in it meets the elements in another order; on another device it draws other numbers. Parameters of 16 bits have
    no twin."""
    made = job["layers"]
    draws = has(made, "Dropout") or any(
        "draw" in one or (has([one], "TransformerEncoderLayer") and one["nn"]["positional"][3] > 0) for one in made)
    others = values.DEVICE != "cpu" or has(made, "MultiheadAttention", "TransformerEncoderLayer")
    return "precision" not in job and not (draws and others)


def freeze(chance, made):
    """Now and then one of several layers that learn."""
    learning = [i for i, one in enumerate(made) if has([one], "Linear", "Conv2d") and "tied" not in one]
    return [chance.choice(learning)] if chance.random() < 0.2 and len(learning) > 1 else None


def job(chance):
    made, loss, given, target = chance.choice([vectors, vectors, several, images, tokens])(chance)
    replicas = chance.choice([1, 1, 2]) if not has(made, "BatchNorm2d") else 1
    return {
        "layers": made, "loss": loss, "input": given, "target": target,
        "micro_batches": replicas * chance.choice([1, 2, 3, 4]), "replicas": replicas, "steps": 2,
        "seed": chance.randint(0, 9999),
        "optimizer": chance.choice([{"type": "sgd", "lr": 0.05, "momentum": 0.9},
                                    {"type": "adamw", "lr": 0.01, "eps": 1e-2}, {"type": "adam", "lr": 0.01, "eps": 1e-2}]),
        "lr_schedule": None, "clip": chance.choice([None, None, 0.5]),
        "freeze": freeze(chance, made),
    }


def plan(chance, count, replicas):
    two = chance.random() < 0.35 and count >= 4
    per_rank = 2 if two else 1
    pipe = chance.randint(1 if two else 2, max(1, min(4, count // per_rank)))
    stages = pipe * per_rank
    cuts = [0, *sorted(chance.sample(range(1, count), min(stages, count) - 1)), count]
    return {
        "parallel": {"pipe": pipe, "data": replicas}, "schedule": chance.choice(TWO if two else ONE),
        "stages_per_rank": per_rank, "partition": chance.choice(["uniform", "parameters", cuts]),
        "recompute": chance.choice([False, False, True, {"every": 2}, sorted(chance.sample(range(count), 1))]),
        "zero": chance.choice([0, 1, 2]) if replicas > 1 else 0,
    }


def generate(chance):
    made = job(chance)
    count = len(made["layers"])
    first = {"parallel": {"pipe": 1, "data": made["replicas"]}}
    others = [plan(chance, count, made["replicas"]) for _ in range(PLANS)]
    if chance.random() < 0.1:
        made.update(optimizer=chance.choice(OF_16_BITS), precision={"type": "bf16", "params": "bf16"})
    return {"plans": [first, *others], "job": made}  # shrinking leaves out plans first


# Each plan of a case is a case of the runner's.

def texts(case, number):
    job_text, data = training.job_text(case["job"])
    for p, given in enumerate(case["plans"]):
        keys = values.call([], given)
        yield number * (PLANS + 1) + p, (
            "function() return driver.steps(%s, %d, { %s, save = { dir = \"saves/%d\" } }, %s) end" % (
                job_text, case["job"]["steps"], keys, number * (PLANS + 1) + p, data))


REASONS = [(re.compile(pattern), reason) for pattern, reason in [
    (r"needs at least \d+ micro-batch", "the schedule is made for so many micro-batches"),
]]


COUNTS = collections.Counter()  # of plans beside the one with one stage


def verdict(case, outcomes):
    """The first plan is judged by PyTorch, the others by the first."""
    first = outcomes[0]
    judged = (training.judge_twin(training.expected_steps, case["job"], first) if has_twin(case["job"])
              else judge(first.values, first))
    if judged.wrong or first.what != "done":
        return judged
    for given, outcome in zip(case["plans"][1:], outcomes[1:]):
        reason = explanation(outcome.text, REASONS) if outcome.what == "refused" else None
        if reason:
            COUNTS["refused: " + reason] += 1
            continue
        if outcome.what != "done":
            return Verdict(outcome.what, "plan %s: %s" % (given, outcome.text))
        same = compare(first.values, outcome.values, 0.0)
        if same.what != "equal":
            return Verdict("wrong", "plan %s differs from one stage: %s" % (given, same.why))
        COUNTS["the bits of one stage"] += 1
    return judged
