#!/usr/bin/env python3
"""Random jobs, most of them wrong somewhere: each trains two steps or is refused before the first
one, in words for its user; none crashes, none hangs. Only a schedule without backwards, which may
evaluate, is refused when it is asked to train.

usage: combinations.py STRATA MODELS TEST...

Many run in one process, as threads; a tenth also as processes over Gloo. TEST=NUMBER says how many
there are; they are the same ones each time, unless $SEED says otherwise.
"""

import os
import random
import re

import program
from program import require

SEED = int(os.environ.get("SEED", "4"))
STEPS = 2
SHARE = 25  # jobs in one process
SECONDS = 120  # for one process; far more than it takes

# Runs each of `cases` as far as it goes, and says how far that was.
HARNESS = """
local strata = require "strata"
local nn, F = strata.nn, strata.F
local function first_line(text) return (tostring(text):gsub("%%s+", " ")) end
local function try(number, make)
  print("begins", number)
  local made, job = pcall(make)
  if not made then return print("refused", number, first_line(job)) end
  local opened, engine = pcall(job.start, job, { transport = "threads" })
  if not opened then return print("refused", number, first_line(engine)) end
  for step = 1, %d do
    local stepped, loss = pcall(engine.train_batch, engine)
    if not stepped then return print(step == 1 and "late" or "broke", number, first_line(loss)) end
    if loss ~= loss or loss == math.huge then return print("broke", number, "loss " .. loss) end
  end
  engine:close()
  print("trained", number)
end
"""

# What must never reach a user.
FORBIDDEN = ["std::", "c10::", "at::", "terminate called", "what():", "nlohmann", "basic_string",
             "stack traceback", "broken invariant", "a bug in Strata"]


class Chance(random.Random):
    """Draws the parts of a job; now and then a wrong one."""

    def __init__(self, seed, wrongness):
        super().__init__(seed)
        self.wrongness = wrongness

    def pick(self, right, wrong):
        return self.choice(wrong if self.random() < self.wrongness else right)


def vectors(chance, rows):
    """(layers, loss, data): rows of numbers."""
    width = chance.choice([4, 8, 12])
    samples = chance.pick([rows], [rows + 1, 1])
    hidden = [chance.choice([4, 6, 8, 16]) for _ in range(chance.randrange(1, 7))]
    layers, at = [], width
    for size in hidden:
        split = chance.choice(["", "", ', split="column"', ', split="row"'])
        layers.append("nn.Linear{%d, %d%s}" % (chance.pick([at], [at + 1, 0, -3, 1 << 40]), size, split))
        layers.append(chance.choice(["nn.ReLU{}", "nn.GELU{}", "nn.Dropout{0.1}", "nn.Tanh{}",
                                     "nn.LayerNorm{%d}" % chance.pick([size], [size * 2]),
                                     chance.pick(["function(x) return x * 0.5 end"],
                                                 ["function(x) end", "function(x) return 7 end",
                                                  "function(x) return x, x:gt(0) end",
                                                  "function(x) return x:nosuch() end",
                                                  "function(x) return x:sum() end"])]))
        at = size
    if chance.random() < 0.3:
        place = chance.randrange(len(layers))
        layers.insert(place, 'strata.skip{"side"}')
        how = chance.choice(["pass", "add"])
        layers.insert(chance.pick([place + 1, len(layers)], [0]),
                      'strata.join{"side", how="%s"}' % how if how == "add" else
                      'strata.join{"side", how="pass"}, function(x, side) return x end')
    if chance.random() < 0.3:
        layers.insert(chance.randrange(1, len(layers)), "strata.cut()")
    classes = chance.choice([2, 5])
    layers.append("nn.Linear{%d, %d}" % (at, classes))
    loss, target = chance.pick(
        [("nn.CrossEntropyLoss{}", "F.zeros({%d}, {dtype=\"int64\"})" % samples),
         ("nn.MSELoss{}", "F.ones{%d, %d}" % (samples, classes)),
         ("function(y, t) return (y - t):square():sum(), %d end" % samples,
          "F.ones{%d, %d}" % (samples, classes))],
        [("nn.CrossEntropyLoss{}", "F.ones{%d}" % samples),
         ("nn.CrossEntropyLoss{}", "F.zeros({%d}, {dtype=\"int64\"})" % (samples + 1)),
         ("nn.CrossEntropyLoss{}", "F.zeros({%d}, {dtype=\"int64\"}):add(%d)" % (samples, classes)),
         ("nn.MSELoss{}", "F.ones{%d, %d}" % (samples, classes + 1)),
         ("nn.MSELoss{}", "F.zeros({%d, %d}, {dtype=\"int64\"})" % (samples, classes)),
         ("nn.NLLLoss{}", "nil"), ("function(y, t) return y end", "F.ones{1}"),
         ("function(y, t) end", "F.ones{1}"), ("nn.ReLU{}", "F.ones{1}")])
    dtype = chance.pick(["float32"], ["float64", "int64", "bool"])
    data = "function(i) return F.ones({%d, %d}, {dtype=\"%s\"}), %s end" % (
        samples, chance.pick([width], [width + 1]), dtype, target)
    return layers, loss, data


def images(chance, _):
    channels, size = chance.choice([1, 3]), chance.choice([6, 8])
    classes = chance.choice([2, 10])
    inward = chance.pick([channels], [channels + 1, 0])
    layers = ["nn.Conv2d{%d, 4, kernel_size=3, padding=1}" % inward,
              chance.choice(["nn.BatchNorm2d{4}", "nn.ReLU{}"]),
              "nn.MaxPool2d{%d}" % chance.pick([2], [0, 64, size + 1])]
    layers += ["nn.Conv2d{4, 4, 3, padding=1}, nn.ReLU{}"] * chance.randrange(3)
    flat = 4 * (size // 2) ** 2
    layers += ["nn.Flatten{}"] if chance.random() > chance.wrongness else []
    layers.append("nn.Linear{%d, %d}" % (chance.pick([flat], [flat - 1, 1]), classes))
    data = "strata.data.images{shape={%d, %d, %d}, classes=%d, samples=%d}" % (
        channels, size, chance.pick([size], [size + 2]), chance.pick([classes], [classes + 1]),
        chance.pick([64, 200], [1, 3]))
    return layers, chance.pick(["nn.CrossEntropyLoss{}"], ["nn.MSELoss{}", "nn.BCELoss{}"]), data


def tokens(chance, _):
    words, length, dim = chance.choice([12, 16]), chance.choice([4, 6]), chance.choice([8, 12])
    heads = chance.pick([2, 4], [3, 0, 5])
    split = chance.choice(["", "", ', split="sequence"', ', split="none"'])
    embedding, head = "nn.Embedding{%d, %d}" % (words, dim), "nn.Linear{%d, %d}" % (dim, words)
    if chance.random() < 0.4:
        embedding = 'strata.tied{"words", nn.Embedding{%d, %d}}' % (words, dim)
        head = chance.pick(
            ['strata.tied{"words", nn.Linear{%d, %d, bias=false}, weight="weight"}' % (dim, words)],
            ['strata.tied{"words", nn.Linear{%d, %d}}' % (dim, words + 1),
             'strata.tied{"word", nn.Linear{%d, %d}}' % (dim, words),
             'strata.tied{"words", nn.ReLU{}}'])
    layers = [embedding]
    layers += ["nn.TransformerEncoderLayer{%d, %d, dim_feedforward=%d, dropout=0.1, "
               "batch_first=true%s}" % (dim, heads, 2 * dim, split)] * chance.randrange(1, 4)
    layers += ["nn.LayerNorm{%d}" % dim, head]
    data = "strata.data.tokens{%d, length=%d, samples=%d}" % (
        chance.pick([words], [words * 2]), length, chance.pick([100], [0, 1, 3]))
    return layers, "nn.CrossEntropyLoss{}", data


def degrees(chance):
    right = [1, 1, 1, 2, 2, 3]
    wrong = [0, -1, 7, 64, "1.5", '"two"', 1 << 31, "nil"]
    axes = {axis: chance.pick(right, wrong) for axis in ["pipe", "data"]}
    axes["model"] = chance.pick([1, 1, 1, 2], [3, 0, 5])
    chosen = [axis for axis in axes if chance.random() < 0.8]
    if chance.random() < chance.wrongness / 3:
        chosen.append(chance.choice(["expert", "tensor"]))
    return "{ %s }" % ", ".join("%s = %s" % (axis, axes.get(axis, 2)) for axis in chosen)


def batch(chance, size):
    micro = chance.choice([1, 2, 3, 4, 8])
    parts = {"micro_batches": chance.pick([micro], [0, -2, "1e9", '"many"']),
             "micro_batch_size": chance.pick([size], [0, "2.5"]), "size": micro * size}
    chosen = chance.pick([["micro_batches", "micro_batch_size"], ["size", "micro_batches"]],
                         [["size"], ["micro_batches"], [], list(parts)])
    if chance.random() < chance.wrongness:
        parts["size"] += 1
    return "{ %s }" % ", ".join("%s = %s" % (part, parts[part]) for part in chosen)


def schedule(chance):
    one = ["1f1b", "1f1b", "gpipe", "zb_h1", "zb_h2", "auto"]
    two = ["interleaved_1f1b", "looped_bfs", "interleaved_zb", "zbv", "v_half", "v_min", "dualpipev"]
    name, stages = chance.choice([(name, 1) for name in one * 2] + [(name, 2) for name in two])
    return (chance.pick(['"%s"' % name], ['"1b1f"', '"inference"', '"nosuch.csv"', "5", "{}",
                                          "function() return {} end",
                                          "function() return {{\"0F0\"}} end"]),
            chance.pick([stages], [3 - stages, 0, 3, 40000]))


def partition(chance, layers):
    count = len(layers)
    cuts = [str(chance.randrange(count + 1)) for _ in range(chance.randrange(2, 5))]
    return chance.pick(['"parameters"', '"uniform"', '"parameters"', '"type:Linear"'],
                       ["{ %s }" % ", ".join(cuts), "{ 0, %d }" % count, '"time"', '"type:["',
                        '"type:Nothing"', "function(layers, stages) return {0, 1, #layers} end",
                        "function() return 7 end", "{}", "{ 0, 1, 1, %d }" % count])


def case(number):
    """The text of a function that makes a job."""
    chance = Chance(SEED * 100_000 + number, [0.0, 0.05, 0.15][number % 3])
    rows = chance.choice([1, 2, 4])
    layers, loss, data = chance.choice([vectors, images, tokens])(chance, rows)
    name, stages = schedule(chance)
    keys = {
        "layers": "{ %s }" % ", ".join(layers),
        "loss": loss,
        "data": data,
        "parallel": degrees(chance),
        "batch": batch(chance, rows),
        "schedule": name,
        "stages_per_rank": stages,
        "partition": partition(chance, layers),
        "optimizer": chance.pick(['{ "sgd", lr = 0.01, momentum = 0.9 }', '{ "adamw", lr = 1e-3 }',
                                  '{ "adam" }'],
                                 ['{ "sgdd" }', '{ "sgd", lr = -1 }', '{ "adamw", betas = {1, 2} }',
                                  '{ "sgd", groups = {{layers = {99}, lr = 1}} }']),
        "zero": chance.pick([0, 1, 2], [3, 4]),
        "clip": chance.pick(["nil", 1.0], [0, -1]),
        "recompute": chance.pick(["false", '"auto", memory = "150KB"', "true", "{ every = 2 }"],
                                 ["{ every = 0 }", '"automatic"', "{ 99 }", '{ "type:Nothing" }']),
        "freeze": chance.pick(["nil", "nil", "{ 0 }", '"type:Linear"'], ["{ 99 }", '"type:["']),
        "tie_check": chance.choice([0, 1]),
        "steps": STEPS, "device": '"cpu"', "threads": 1, "hang_timeout": 30,
        "check": chance.pick(["nil", "{ every = 1 }"], ["{ every = 0 }", "2", "true"]),
    }
    return "function()\n  return strata.job { %s }\nend" % ",\n    ".join("%s = %s" % pair for pair in keys.items())


def run_together(strata, numbers):
    """The lines of HARNESS about these cases."""
    script = HARNESS % STEPS + "".join("try(%d, %s)\n" % (n, case(n)) for n in numbers)
    job = strata.start("run", strata.write("together.lua", script), before=["timeout", str(SECONDS), "stdbuf", "-oL"])
    code, out, errors = job.end()
    return code, out.splitlines(), errors


def threads(strata, count=100):
    told, failures = {}, []
    numbers = list(range(count))
    while numbers:
        code, lines, errors = run_together(strata, numbers[:SHARE])
        begun = -1
        for line in lines:
            found = re.fullmatch(r"(begins|trained|refused|late|broke)\s+(\d+)\s*(.*)", line)
            if not found:
                continue
            what, number, text = found.group(1), int(found.group(2)), found.group(3)
            begun = number
            told[number] = what
            may_be_late = "cannot train" in text
            if (what == "broke" or (what == "late" and not may_be_late) or any(word in text for word in FORBIDDEN)):
                failures.append("%s\n-- %s: %s" % (case(number), what, text))
        if code != 0:
            how = "hangs" if code == 124 else "ends the process with code %d" % code
            failures.append("%s\n-- %s: %s" % (case(begun), how, errors))
        numbers = [n for n in numbers if n > max(begun, numbers[0])]
    counts = {what: list(told.values()).count(what) for what in ["trained", "refused", "late", "broke"]}
    print(counts)
    require(not failures, "no failure", "\n\n".join(failures))
    require(counts["trained"] >= count // 10, "jobs that train", counts)
    require(counts["refused"] >= count // 4, "jobs that are refused", counts)


def processes(strata, count=100):
    trained = 0
    script = "local strata = require 'strata'\nlocal nn, F = strata.nn, strata.F\nreturn (%s)()\n"
    for number in range(0, count, 10):
        job = strata.start("train", strata.write("one.lua", script % case(number)),
                           "--transport=gloo", "--print_every=1",
                           before=["timeout", str(SECONDS)])
        code, out, errors = job.end()
        done = len(re.findall("^step ", out, re.M))
        require((code == 0 and done == STEPS) or (code == 2 and done == 0),
                "a training or a refusal", (case(number), code, out, errors))
        require(not any(word in errors for word in FORBIDDEN), "words for people", errors)
        trained += code == 0
    print("%d of %d trained" % (trained, len(range(0, count, 10))))


if __name__ == "__main__":
    program.main(globals())
