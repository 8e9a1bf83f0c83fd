"""Random nets whose loss, or whose metrics, have to know which dim of the output holds the classes. Layers fix
lengths and mix positions in every way, and half of the nets have as many classes as positions.

A case knows in which dim its script means the classes: `meant`. Strata must compute what PyTorch computes with
the classes there, or refuse the plan with both readings. It may refuse only where both dims 1 and -1 fit the target
and the script says nothing.

A case is: layers (each {"nn": a layer as layers.py has them}, {"chain": methods of the tensor},
{"own": a layer of RUN, "args"} or {"sum": of two inputs}), inputs and target (tensors of a sample), loss,
written (class_dim in the script, or None), is_function (the loss is a function of the script, and class_dim is
said to eval), reads (how data is given), pipe, seed.
"""

import collections

import layers
import training
import values
from compare import Verdict, described, judge
from pytorch import torch
from values import tensor

nn = torch.nn
ROWS, SAMPLES, LR = 2, 4, 0.1  # of a micro-batch; of an epoch, which is one step
METRICS = ["accuracy", "top5", "f1"]

RUN = """
local function own(name, init, forward)
  driver[name] = strata.layer {
    name = name, init = init, forward = forward,
    reset = function(self) if self.weight then nn.init.normal_(self.weight) end end,
  }
end
local function table_of(self, length, width) self.weight = self:parameter{length, width, fill=0} end

own("Positions", table_of, function(self, x) return x + self.weight end)
own("LongTable", table_of, function(self, x) return x + self.weight:narrow(0, 0, x.shape[2]) end)
own("Mask", function(self, length, width) self:buffer("mask", F.ones{length, width}:tril()) end,
    function(self, x) return x + x * self.mask end)
own("Pointer", function(self, width) self.query = nn.Linear{width, width} end,
    function(self, x) return self.query(x):matmul(x:transpose(1, 2)) end)

-- The loss and the metrics of all samples, then two steps on them.
function driver.classes(spec, plan)
  local function get(i)
    local inputs = {}
    for n, input in ipairs(spec.inputs) do
      inputs[n] = T{shape=input.shape, k=17 * i + input.k, low=input.low, high=input.high, dtype=input.dtype}
    end
    local t = spec.target
    return #inputs == 1 and inputs[1] or inputs, T{shape=t.shape, k=17 * i + t.k, low=t.low, high=t.high, dtype=t.dtype}
  end
  local function rows(i)
    local inputs, targets = {}, {}
    for row = 0, spec.rows - 1 do
      local x, t = get(i % (spec.samples / spec.rows) * spec.rows + row)
      for n, input in ipairs(#spec.inputs == 1 and {x} or x) do
        inputs[n] = inputs[n] or {}
        table.insert(inputs[n], input)
      end
      table.insert(targets, t)
    end
    for n, list in ipairs(inputs) do inputs[n] = F.stack(list) end
    return #inputs == 1 and inputs[1] or inputs, F.stack(targets)
  end
  local test = strata.dataset{length=spec.samples, get=get}
  local train = spec.reads == "function" and rows or strata.dataset{length=spec.samples, get=get}
  local job = strata.job {
    layers = spec.layers, loss = spec.loss, data = {train=train, test=test},
    eval = {metrics=spec.metrics, class_dim=spec.eval_class_dim},
    batch = {micro_batches=spec.samples / spec.rows, micro_batch_size=spec.rows},
    optimizer = {"sgd", lr=spec.lr}, steps = 2, seed = spec.seed, device = driver.device, threads = 1,
    hang_timeout = 100,
  }
  job:plan(plan)
  local engine = job:start(plan)
  return driver.closing(engine, function(number)
    local found = engine:evaluate()
    show(number, "evaluated", found.loss)
    for _, metric in ipairs(spec.metrics) do show(number, metric, found[metric]) end
    for step = 1, 2 do show(number, "loss" .. step, engine:train_batch()) end
  end)
end
"""


# Random nets. Each function gives layers, inputs, the shape of an output's sample, and the dim of its classes
# counted from the batch.

def layer(kind, *positional, **named):
    return {"nn": {"type": kind, "positional": list(positional), "named": named}}


def chain(*methods):
    return {"chain": [list(method) for method in methods]}


TURN = chain(["transpose", 1, 2])


def between(chance, length, width):
    """Layers from (batch, length, width) to the same shape. Most of them fix the length."""
    return chance.choice([
        lambda: [{"own": "Positions", "args": [length, width]}],
        lambda: [{"own": "LongTable", "args": [length + chance.randint(1, 3), width]}],
        lambda: [{"own": "Mask", "args": [length, width]}],
        lambda: [TURN, layer("Linear", length, length), TURN],
        lambda: [TURN, layer("Linear", length, 5), layer("Tanh"), layer("Linear", 5, length), TURN],
        lambda: [layer("LayerNorm", [length, width])],
        lambda: [layer("LayerNorm", width)],
        lambda: [TURN, layer("Conv1d", width, width, 3, padding=1), TURN],
        lambda: [layer("Conv1d", length, length, 3, padding=1)],
        lambda: [layer("TransformerEncoderLayer", width, 2, 8, 0.0, batch_first=True, causal=True)],
        lambda: [layer("Linear", width, width), layer("GELU")],
        lambda: [layer("Residual", layer("Linear", width, width)["nn"], layer("Tanh")["nn"])],
    ])()


def hidden(chance, length, width):
    """What makes (batch, length, width) of the inputs, and the inputs."""
    def floats(k, *shape):
        return tensor(shape, k)
    body = [part for _ in range(chance.randint(1, 3)) for part in between(chance, length, width)]
    start, inputs = chance.choice([
        lambda: ([layer("Embedding", 11, width)], [tensor([length], 1, 0, 11, "int64")]),
        lambda: ([layer("Embedding", 11, width)], [tensor([length], 1, 0, 11, "int64")]),
        lambda: ([layer("Linear", 3, width)], [floats(1, length, 3)]),
        lambda: ([layer("Conv1d", 3, width, 3, padding=1), TURN], [floats(1, 3, length)]),
        lambda: ([{"sum": "add"}, layer("Linear", 3, width)], [floats(1, length, 3), floats(5, length, 3)]),
    ])()
    return start + body, inputs


def positions(chance):
    """How many positions and classes: often as many of both."""
    length = chance.randint(2, 9)
    return length, length if chance.random() < 0.5 else chance.randint(2, 9)


def after(chance, made, first, second, meant):
    """Further layers behind an output (batch, first, second): tables of its shape, and a turn."""
    if chance.random() < 0.2:
        made = made + [{"own": "Positions", "args": [first, second]}]
    if chance.random() < 0.25:
        return made + [TURN], [second, first], 3 - meant
    return made, [first, second], meant


def tokens(chance):
    """A score for each class of each position, by a Linear or by a convolution."""
    (length, classes), width = positions(chance), chance.choice([4, 6])
    made, inputs = hidden(chance, length, width)
    if chance.random() < 0.7:
        return (inputs, *after(chance, made + [layer("Linear", width, classes)], length, classes, 2))
    made += [TURN, layer("Conv1d", width, classes, 1)]
    return (inputs, *after(chance, made, classes, length, 1))


def pointer(chance):
    """The classes are the positions: each of some positions points at one."""
    length, width = chance.randint(2, 8), 4
    made, inputs = hidden(chance, length, width)
    made.append({"own": "Pointer", "args": [width]})
    asked = length if chance.random() < 0.6 else chance.randint(1, length)
    if asked < length:
        made.append(chain(["narrow", 1, 0, asked]))
    return (inputs, *after(chance, made, asked, length, 2))


def pictures(chance):
    """The classes in dim 1, in the last dim, or between both."""
    height, width = chance.choice([(3, 3), (3, 4), (4, 4), (4, 3)])
    classes = chance.choice([height, width, 3, 5])
    made, inputs = [layer("Conv2d", 2, classes, 3, padding=1)], [tensor([2, height, width], 1)]
    if chance.random() < 0.4:
        made.append({"own": "Positions", "args": [height, width]})
    shape = [classes, height, width]
    meant = chance.choice([1, 1, 2, 3])
    if meant > 1:
        made.append(chain(["movedim", 1, meant]))
        shape = [height, width]
        shape.insert(meant - 1, classes)
    if chance.random() < 0.2:
        made.append(layer("LayerNorm", shape))
    return inputs, made, shape, meant


def vectors(chance):
    """One label for each sample; as many classes as rows, now and then."""
    classes = chance.choice([ROWS, 3, 7])
    return [tensor([4], 1)], [layer("Linear", 4, 6), layer("Tanh"), layer("Linear", 6, classes)], [classes], 1


def loss_of(chance, classes, is_soft, is_function):
    kind = chance.choice(["CrossEntropyLoss", "CrossEntropyLoss", "ParallelCrossEntropyLoss", "NLLLoss"])
    if is_soft:
        kind = "CrossEntropyLoss"
    if is_function:
        return {"type": "NLLLoss" if kind == "NLLLoss" else "CrossEntropyLoss", "named": {}}
    weight = [0.5 + 0.25 * c for c in range(classes)]
    options = {"reduction": "sum"}
    if not is_soft:
        options["ignore_index"] = chance.randint(0, classes - 1)
    if kind != "ParallelCrossEntropyLoss":
        options["weight"] = weight
    if kind == "CrossEntropyLoss":
        options["label_smoothing"] = 0.1
    return {"type": kind, "named": chance.some(options, keep=0.3)}


def without(shape, dim):
    """The shape of a label's sample, where the classes are in `dim`, counted from the batch."""
    return shape[:dim - 1] + shape[dim:]


def others(shape, meant):
    """Dims that the labels do not fit."""
    return [dim for dim in range(1, len(shape) + 1) if without(shape, dim) != without(shape, meant)]


def generate(chance):
    inputs, made, shape, meant = chance.choice([tokens, tokens, tokens, pointer, pictures, vectors])(chance)
    rank, classes = len(shape) + 1, shape[meant - 1]
    is_function = chance.random() < 0.25
    is_soft = not is_function and chance.random() < 0.25
    loss = loss_of(chance, classes, is_soft, is_function)
    if loss["type"] == "NLLLoss":
        made = made + [chain(["log_softmax", meant])]
    is_between = 1 < meant < rank - 1
    written = chance.choice([meant, meant - rank, *([] if is_between else [None, None])])
    if is_soft:
        target = tensor(shape, 2, 0.1, 1)
    else:
        target = tensor(without(shape, meant), 2, 0, classes, "int64")
        written = chance.wrong(written, chance.choice([0, rank, -rank, *others(shape, meant)]))
    return {"layers": made, "inputs": inputs, "target": target, "loss": loss, "shape": shape, "meant": meant,
            "written": written, "is_function": is_function, "reads": chance.choice(["function", "dataset"]),
            "pipe": chance.choice([1, 2]) if len(made) > 1 else 1, "seed": chance.randint(0, 9999)}


# In Lua.

def layer_text(part):
    if "sum" in part:
        return "function(x, p) return x + p end"
    if "own" in part:
        return "driver.%s{%s}" % (part["own"], values.call(part["args"], {}))
    return training.layer_text(part)


def loss_text(case):
    kind, named = case["loss"]["type"], case["loss"]["named"]
    if case["is_function"]:
        return ('function(y, t) return F.%s(y:movedim(%d, 1):contiguous(), t, {reduction="sum"}), t:numel() end' % (
            "nll_loss" if kind == "NLLLoss" else "cross_entropy", case["meant"]))
    said = {} if case["written"] is None else {"class_dim": case["written"]}
    return layers.constructor({"type": kind, "positional": [], "named": {**named, **said}})


def described_plainly(spec):
    """The description of a tensor as a table, which driver.classes() makes tensors of."""
    return {name: part for name, part in spec.items() if name != "tensor"}


def texts(case, number):
    fields = {"eval_class_dim": case["written"] if case["is_function"] else None, "metrics": METRICS,
              "inputs": [described_plainly(x) for x in case["inputs"]], "target": described_plainly(case["target"]),
              "reads": case["reads"], "rows": ROWS, "samples": SAMPLES, "seed": case["seed"], "lr": LR}
    yield number, "function() return driver.classes({ layers={ %s },\n loss=%s, %s },\n %s) end" % (
        ", ".join(map(layer_text, case["layers"])), loss_text(case), values.call([], fields),
        values.lua({"parallel": {"pipe": case["pipe"]}}))


# In PyTorch.

class Table(nn.Module):
    def __init__(self, length, width):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(length, width).normal_())

    def forward(self, x):
        return x + self.weight[:x.shape[1]] if x.dim() == 3 else x + self.weight


class Mask(nn.Module):
    def __init__(self, length, width):
        super().__init__()
        self.mask = torch.ones(length, width).tril()

    def forward(self, x):
        return x + x * self.mask


class Pointer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.query = nn.Linear(width, width)

    def forward(self, x):
        return self.query(x).matmul(x.transpose(1, 2))


OWN = {"Positions": Table, "LongTable": Table, "Mask": Mask, "Pointer": Pointer}


class Twin:
    def __init__(self, case):
        self.case, self.modules = case, []
        for i, part in enumerate(case["layers"]):
            torch.manual_seed(case["seed"] + i)
            self.modules.append(OWN[part["own"]](*part["args"]) if "own" in part
                                else layers.module(part["nn"]) if "nn" in part else None)
        self.parameters = [p for module in self.modules if module for p in module.parameters()]

    def samples(self, spec):
        return torch.stack([values.make({**spec, "k": 17 * i + spec["k"]}) for i in range(SAMPLES)])

    def rows(self):
        """Scores and targets with the classes in dim 1, as PyTorch's losses take them."""
        chain = [self.samples(x) for x in self.case["inputs"]]
        for part, module in zip(self.case["layers"], self.modules):
            chain = [chain[0] + chain[1]] if "sum" in part else [training.Network._one(part, module, chain[0])]
        target = self.samples(self.case["target"])
        if target.is_floating_point():
            target = target.movedim(self.case["meant"], 1)
        return chain[0].movedim(self.case["meant"], 1).contiguous(), target

    def loss(self, scores, target):
        named = dict(self.case["loss"]["named"])
        mean = named.pop("reduction", "mean") == "mean"
        is_soft, ignored = target.is_floating_point(), named.get("ignore_index", -100)
        weight = torch.tensor(named.pop("weight")) if "weight" in named else None
        function = nn.functional.nll_loss if self.case["loss"]["type"] == "NLLLoss" else nn.functional.cross_entropy
        total = function(scores, target, weight=weight, reduction="sum", **named)
        if not mean:
            return total
        if is_soft:
            return total / (scores.numel() / scores.shape[1])
        counted = target[target != ignored]
        return total / (max(len(counted), 1) if weight is None else weight[counted].sum() if len(counted) else 1)

    def metrics(self, scores, target):
        classes = scores.shape[1]
        rows = scores.movedim(1, -1).reshape(-1, classes)
        labels = target.argmax(1) if target.is_floating_point() else target
        labels, ignored = labels.flatten(), self.case["loss"]["named"].get("ignore_index", -100)
        counted = labels != ignored if not target.is_floating_point() else torch.ones_like(labels, dtype=torch.bool)
        rows, labels = rows[counted], labels[counted]
        best = rows.topk(min(5, classes), 1).indices
        count = max(len(labels), 1)
        return {"accuracy": (rows.argmax(1) == labels).sum().item() / count,
                "top5": (best == labels[:, None]).any(1).sum().item() / count,
                "f1": f1(labels.tolist(), rows.argmax(1).tolist(), classes)}


def f1(labels, taken, classes):
    """Of class 1 of two, else the mean over the classes that were there or were taken."""
    pairs, there, given = (collections.Counter(of) for of in (zip(labels, taken), labels, taken))
    found = [2 * pairs[c, c] / (there[c] + given[c]) for c in (range(classes) if classes != 2 else [1])
             if there[c] + given[c]]
    return sum(found) / len(found) if found else 0


def expected(case):
    twin = Twin(case)
    optimizer = torch.optim.SGD(twin.parameters, lr=LR)
    found = {}
    for step in (1, 2):
        optimizer.zero_grad()
        scores, target = twin.rows()
        loss = twin.loss(scores, target)
        if step == 1:
            found = {"evaluated": loss.item(), **twin.metrics(scores.detach(), target)}
        found["loss%d" % step] = loss.item()
        loss.backward()
        optimizer.step()
    return {name: described(x) for name, x in found.items()}


# The verdict.

COUNTS = collections.Counter()


def fitting(case):
    """The dims of the classes that the target's shape and the script's words leave open."""
    shape, written = case["shape"], case["written"]
    rank = len(shape) + 1
    said = range(1, rank) if written is None else [written + rank if written < 0 else written]
    is_soft, target = case["target"]["dtype"] != "int64", case["target"]["shape"]
    dims = [dim for dim in said if 0 < dim < rank and target == (shape if is_soft else without(shape, dim))]
    has_to_be_said = written is None and len(dims) == 1 and 1 < dims[0] < rank - 1
    return [] if has_to_be_said else dims


def check(case):
    """Raises ValueError for what shrinking made of a case: the output, or the target, has another shape."""
    target = case["target"]["shape"]
    try:
        scores, _ = Twin(case).rows()
    except training.ERRORS as error:
        raise ValueError("no net") from error
    if list(scores.movedim(1, case["meant"]).shape[1:]) != case["shape"] or target not in (
            case["shape"], without(case["shape"], case["meant"])):
        raise ValueError("another shape")


def verdict(case, outcomes):
    check(case)
    outcome, dims = outcomes[0], fitting(case)
    if dims == [case["meant"]]:
        judged = judge(expected(case), outcome)
        COUNTS["computed, class_dim %s" % ("not said" if case["written"] is None else "said")] += not judged.wrong
        return judged
    if outcome.what != "refused":
        why = "the dims %s fit: %s" % (dims, outcome.text)
        return Verdict("accepted" if outcome.what == "done" else outcome.what, why)
    words = ["class_dim = %d" % (-1 if dim == len(case["shape"]) else dim) for dim in dims] or ["class"]
    if not all(word in outcome.text for word in words):
        return Verdict("refused", outcome.text)
    COUNTS["refused with both readings" if dims else "refused: class_dim fits nothing"] += 1
    return Verdict("explained", outcome.text)
