#!/usr/bin/env python3
"""Where the classes lie, in scripts as users write them (tests/differential/class_dims.py draws random ones): each test
compares loss and metrics with those that PyTorch computes of the same values, or expects the plan's refusal.

usage: label_shapes.py STRATA MODELS TEST...
"""

import re

import main as twins
import program
from program import require
from pytorch import torch

nn, F = torch.nn, torch.nn.functional
SEED = twins.SEED

# Arrays of data.safetensors are the samples of training and test alike.
HEAD = """
local strata = require "strata"
local nn, F = strata.nn, strata.F
local function samples(map)
  local source = strata.data.safetensors{"data.safetensors", target="y", shuffle=false}
  return map and source:map(map) or source
end
local function evaluates(job)
  local engine = strata.job(job):start{transport="threads"}
  print("job")
  for name, value in pairs(engine:evaluate()) do
    if type(value) == "number" then print(("%s %.17g"):format(name, value)) end
  end
  print("end")
  engine:close()
end
local Positions = strata.layer {
  name = "Positions",
  init = function(self, length, width) self.weight = self:parameter{length, width, fill=0} end,
  reset = function(self) nn.init.normal_(self.weight) end,
  forward = function(self, x) return x + self.weight end,
}
"""
KEYS = """optimizer = {"sgd", lr=0.1}, seed = 1234, device = "cpu", threads = 1"""
BOTH = r"class_dim = 1\}? or .*class_dim = -1"


def give(strata, x, y):
    twins.write_safetensors(strata.path("data.safetensors"), {"x": x, "y": y})


def evaluated(strata, jobs, setup=""):
    """Of each job what its evaluation gives by name."""
    calls = ["evaluates(%s)" % job for job in jobs]
    shown = strata.run("run", strata.write("net.lua", "\n".join([HEAD, setup, *calls])))
    runs = re.findall(r"^job$(.*?)^end$", shown, re.M | re.S)
    require(len(runs) == len(jobs), "%d runs" % len(jobs), shown)
    return [{name: float(value) for name, value in re.findall(r"^(\w+) (\S+)$", run, re.M)} for run in runs]


def refused(strata, job, pattern, commands=("plan",), setup=""):
    """With exit code 2."""
    path = strata.write("refused.lua", "\n".join([HEAD, setup, "return strata.job " + job]))
    for command in commands:
        shown = strata.run(command, path, code=2)
        require(re.search(pattern, shown, re.S), pattern, shown)


def near(ours, theirs):
    require(abs(ours - theirs) <= twins.STRAIGHT * max(1, abs(theirs)), theirs, ours)


def seeded(index, make):
    """A module with the initial values of the job's layer `index`."""
    torch.manual_seed(SEED + index)
    return make()


def accuracy(scores, labels, count=1, dim=-1):
    best = scores.movedim(dim, -1).topk(min(count, scores.shape[dim]), -1).indices
    return best.eq(labels.unsqueeze(-1)).any(-1).double().mean().item()


class Positions(nn.Module):
    def __init__(self, length, width):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(length, width).normal_())

    def forward(self, x):
        return x + self.weight


NUMBERS = """{
  layers = { nn.Linear{4, 4} }, loss = %s, eval = { metrics={%s} }, data = { train = samples(%s), test = samples(%s) },
  batch = { micro_batches=1, micro_batch_size=2 }, steps = 1, """ + KEYS + " }"


def numbers_in_other_shapes(strata):
    """mae compares element by element: a target that the loss function turns is refused, though its size fits."""
    torch.manual_seed(3)
    x = torch.randn(4, 3, 4)
    give(strata, x, torch.randn(4, 4, 3))
    turns = "function(y, t) return F.mse_loss(y, t:transpose(1, 2)) end"
    for metric in ("mae", "r2"):
        refused(strata, NUMBERS % (turns, '"%s"' % metric, "", ""),
                metric + r" needs a target in the output's shape; the output is float32 \(2, 3, 4\), .*\(2, 4, 3\)")
    evaluated(strata, [NUMBERS % (turns, "", "", "")])
    give(strata, x, y := torch.randn(4, 3, 4))
    [ours] = evaluated(strata, [NUMBERS % ("nn.MSELoss{}", '"mae"', "", "")])
    output = seeded(0, lambda: nn.Linear(4, 4))(x).detach()
    near(ours["mae"], (output - y).abs().mean().item())
    near(ours["loss"], F.mse_loss(output, y).item())


def two_classes(strata):
    """0 and 1 as floats, integers, bytes or truths are one target. Losses of numbers have no accuracy."""
    torch.manual_seed(4)
    x, y = torch.randn(4, 4), torch.randint(2, (4, 4))
    give(strata, x, y)
    output = seeded(0, lambda: nn.Linear(4, 4))(x).detach()
    to = ['function(x, y) return x, y:to("%s") end' % dtype for dtype in ("float32", "int64", "int32", "uint8", "bool")]
    with_sigmoid = NUMBERS.replace("nn.Linear{4, 4}", "nn.Linear{4, 4}, nn.Sigmoid{}")
    jobs = [text % (loss, '"accuracy", "f1"', one, one) for one in to
            for text, loss in [(NUMBERS, "nn.BCEWithLogitsLoss{}"), (with_sigmoid, "nn.BCELoss{}")]]
    for ours in evaluated(strata, jobs):
        near(ours["loss"], F.binary_cross_entropy_with_logits(output, y.float()).item())
        near(ours["accuracy"], output.gt(0).eq(y.bool()).double().mean().item())
    for one, loss in zip(to[1:], ["MSELoss", "L1Loss", "PoissonNLLLoss", "MSELoss"]):
        refused(strata, NUMBERS % ("nn.%s{}" % loss, '"accuracy"', one, one),
                "accuracy needs labels, or a loss of scores")


RAGGED = """
local function texts(lengths)
  return strata.dataset{ length=#lengths, ragged=true, get=function(i)
    local n = lengths[i + 1]
    return (F.arange(n) * 3 + i):remainder(6), (F.arange(n) * 5 + 2 * i + 1):remainder(6)
  end }
end
"""
PADDED = """{
  layers = { function(x, mask) return x end, nn.Embedding{6, 4}, nn.Linear{4, 6}%s }, loss = %s,
  data = { train = texts{%d, 5, 5, 5}, test = texts{6, 6, 4, 5, 6, 2}, collate="pad" },
  eval = { metrics={"accuracy"}%s }, batch = { micro_batches=1, micro_batch_size=2 }, steps = 1, """ + KEYS + " }"


def padded_texts(strata):
    """The training's texts have 5 tokens and decide; a batch of the test has 6, as many as there are classes."""
    model = nn.Sequential(seeded(1, lambda: nn.Embedding(6, 4)), seeded(2, lambda: nn.Linear(4, 6)))
    total = correct = count = 0
    for i, length in enumerate([6, 6, 4, 5, 6, 2]):
        places = torch.arange(length)
        scores, labels = model((places * 3 + i) % 6).detach(), (places * 5 + 2 * i + 1) % 6
        total += F.cross_entropy(scores, labels, reduction="sum").item()
        correct += scores.argmax(1).eq(labels).sum().item()
        count += length
    function = 'function(y, t) return F.cross_entropy(y%s, t, {reduction="sum"}), t:ne(-100):sum() end'
    turn = ":transpose(1, 2)"
    turned = ", function(x) return x%s end" % turn
    layer = "nn.CrossEntropyLoss{%s}"
    nets = [("", layer % "", ""), (turned, layer % "", ""), ("", layer % "class_dim=-1", ""),
            (turned, layer % "class_dim=1", ""), ("", function % turn, ""), (turned, function % "", ""),
            ("", function % turn, ", class_dim=-1")]
    for ours in evaluated(strata, [PADDED % (last, loss, 5, said) for last, loss, said in nets], setup=RAGGED):
        near(ours["loss"], total / count)
        near(ours["accuracy"], correct / count)
    refused(strata, PADDED % ("", layer % "", 6, ""), BOTH, setup=RAGGED)


GRID = """{
  layers = { nn.Embedding{6, 4}, nn.Linear{4, 6} }, loss = %s,
  data = { train = samples(function(x, y) return x[0]%s, y[0]%s end), test = samples() },
  eval = { metrics={"accuracy"}%s },
  batch = { micro_batches=1, micro_batch_size=2 }, steps = 1, """ + KEYS + " }"


def other_dims(strata):
    """The training has texts, the test pictures of tokens: -1 is the last dim of either. Samples of one token say
    nothing about texts."""
    torch.manual_seed(5)
    x, y = torch.randint(6, (4, 6, 6)), torch.randint(6, (4, 6, 6))
    give(strata, x, y)
    model = nn.Sequential(seeded(0, lambda: nn.Embedding(6, 4)), seeded(1, lambda: nn.Linear(4, 6)))
    scores = model(x).detach()
    function = "function(y, t) return F.cross_entropy(y:movedim(-1, 1), t) end"
    layer = "nn.CrossEntropyLoss{%s}"
    short = ":narrow(0, 0, 5)"
    for ours in evaluated(strata, [GRID % (loss, cut, cut, said) for loss, cut, said in [
            (layer % "class_dim=-1", "", ""), (layer % "class_dim=-1", short, ""), (layer % "", short, ""),
            (function, "", ", class_dim=-1"), (function, short, "")]]):
        near(ours["loss"], F.cross_entropy(scores.movedim(-1, 1), y).item())
        near(ours["accuracy"], accuracy(scores, y))
    refused(strata, GRID % (layer % "", "[0]", "[0]", ""), BOTH)


TWO_TARGETS = """{
  layers = { nn.Embedding{6, 4}, Positions{6, 4}, nn.Linear{4, 6} },
  loss = function(y, targets) return F.cross_entropy(y:movedim(%d, 1), targets[1]) end,
  data = { train = samples(two), test = samples(two) }, eval = { metrics={"accuracy"}%s },
  batch = { micro_batches=1, micro_batch_size=2 }, steps = 1, """ + KEYS + " }"
TWO = "local function two(x, y) return x, {y, F.ones{6}} end"


def two_targets(strata):
    """The metrics of a loss function of two targets go by eval.class_dim too."""
    torch.manual_seed(6)
    x, y = torch.randint(6, (4, 6)), torch.randint(6, (4, 6))
    give(strata, x, y)
    model = nn.Sequential(seeded(0, lambda: nn.Embedding(6, 4)), seeded(1, lambda: Positions(6, 4)),
                          seeded(2, lambda: nn.Linear(4, 6)))
    scores = model(x).detach()
    for dim, ours in zip((1, 2), evaluated(strata, [
            TWO_TARGETS % (dim, ", class_dim=%d" % dim) for dim in (1, -1)], setup=TWO)):
        near(ours["loss"], F.cross_entropy(scores.movedim(dim, 1), y).item())
        near(ours["accuracy"], accuracy(scores, y, dim=dim))
    refused(strata, TWO_TARGETS % (-1, ""), BOTH, setup=TWO)


if __name__ == "__main__":
    program.main(globals())
