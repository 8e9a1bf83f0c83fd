#!/usr/bin/env python3
"""Breaks right scripts and right command lines in some 200 ways and expects of each: an error at
once, with exit code 2, that says where and what, and no crash, no hang, no C++ in the text.

usage: wrong_scripts.py STRATA MODELS [--seconds N] [--only NAME] [--show]
"""

import argparse
import os
import random
import re
import subprocess
import sys
import tempfile
import time

# A right script. Each mutation replaces one piece of it.
RIGHT = """\
local strata = require "strata"
local nn, F = strata.nn, strata.F
local opt = strata.options { width = 8 }
return strata.job {
  name = "small",
  input = { shape = {1, 8, 8}, dtype = "float32" },
  layers = {
    nn.Conv2d{1, 8, kernel_size=3, padding=1},
    nn.ReLU{},
    nn.MaxPool2d{2, stride=2},
    nn.Flatten{},
    nn.Dropout{0.5},
    nn.Linear{128, 32, bias=true},
    nn.LayerNorm{32, eps=1e-5},
    nn.GELU{},
    nn.Linear{32, 10},
  },
  loss = nn.CrossEntropyLoss{},
  partition = "parameters",
  parallel = { pipe = 2 },
  schedule = "1f1b",
  batch = { micro_batches = 2, micro_batch_size = 4 },
  optimizer = { "sgd", lr = 0.1, momentum = 0.9 },
  lr_schedule = { "cosine", warmup = 2 },
  clip = 1.0,
  seed = 7,
  data = { train = strata.data.images{shape={1, 8, 8}, classes=10, samples=64} },
  steps = 1,
}
"""

# What must never reach a user.
FORBIDDEN = ["std::", "c10::", "terminate called", "what():", "nlohmann", "Segmentation",
             "core dumped", "Exception raised from", "basic_string", "stack traceback",
             "broken invariant"]


class Case:
    def __init__(self, name, script=RIGHT, flags=(), needles=(), command="plan", raw=None):
        self.name = name
        self.script = script
        self.flags = list(flags)
        self.needles = list(needles)
        self.command = command
        self.raw = raw  # the whole command line instead


def replaced(old, new):
    if RIGHT.count(old) != 1:
        raise ValueError("%r stands %d times in the right script" % (old, RIGHT.count(old)))
    return RIGHT.replace(old, new)


def line_of(piece):
    return "%d" % (RIGHT[:RIGHT.index(piece)].count("\n") + 1)


def misspelled(word, generator):
    """A near miss: two neighbours swapped, one letter dropped or doubled."""
    at = generator.randrange(1, len(word) - 1)
    ways = [word[:at] + word[at + 1:], word[:at] + word[at] + word[at:]]
    if word[at] != word[at + 1]:
        ways.append(word[:at] + word[at + 1] + word[at] + word[at + 2:])
    return generator.choice(ways)


def misspelled_keys(generator):
    keys = ["name", "input", "layers", "loss", "partition", "parallel", "schedule", "batch",
            "optimizer", "lr_schedule", "clip", "seed", "data", "steps"]
    for key in keys:
        for _ in range(2):
            wrong = misspelled(key, generator)
            if wrong in keys:
                continue
            script = re.sub(r"^  %s = " % key, "  %s = " % wrong, RIGHT, count=1, flags=re.M)
            yield Case("key " + wrong, script, needles=[wrong, key, "wrong.lua:"])


def misspelled_members(generator):
    members = [("parallel = { pipe", "pipe"), ("{ micro_batches", "micro_batches"),
               (", micro_batch_size", "micro_batch_size"), ("\"sgd\", lr", "lr"),
               (", momentum", "momentum"), ("\"cosine\", warmup", "warmup"),
               ("{train" if "{train" in RIGHT else "{ train", "train"),
               ("{ shape = {1, 8, 8}, dtype", "dtype"), ("images{shape", "shape"),
               (", classes", "classes"), (", samples", "samples")]
    for context, member in members:
        wrong = misspelled(member, generator) if len(member) > 2 else member + "x"
        script = replaced(context, context[:-len(member)] + wrong)
        yield Case("member " + wrong, script, needles=[wrong, member])


def misspelled_layers(generator):
    for name in ["Conv2d", "MaxPool2d", "Flatten", "Dropout", "LayerNorm", "GELU", "CrossEntropyLoss"]:
        for _ in range(2):
            wrong = misspelled(name, generator)
            script = replaced("nn.%s{" % name, "nn.%s{" % wrong)
            yield Case("layer " + wrong, script, needles=[wrong, name, "wrong.lua:" + line_of("nn.%s{" % name)])


def misspelled_arguments(generator):
    for argument in ["kernel_size", "padding", "stride", "bias"]:
        for _ in range(2):
            wrong = misspelled(argument, generator)
            script = replaced(argument + "=", wrong + "=")
            yield Case("argument " + wrong, script, needles=[wrong, argument, "wrong.lua:" + line_of(argument + "=")])


def wrong_arguments():
    values = {
        "kernel_size=3": ["kernel_size=\"three\"", "kernel_size=0", "kernel_size=2.5",
                          "kernel_size={1, 2, 3}", "kernel_size=true", "kernel_size=print",
                          "kernel_size={}"],
        "padding=1": ["padding=-1", "padding=\"sme\"", "padding={1}"],
        "stride=2": ["stride=0", "stride=-2", "stride=\"2x\""],
        "bias=true": ["bias=1", "bias=\"yes\"", "bias={}"],
        "eps=1e-5": ["eps=\"small\"", "eps={}", "eps=false"],
        "Dropout{0.5}": ["Dropout{1.5}", "Dropout{-0.1}", "Dropout{\"half\"}", "Dropout{0.1, 2, 3}"],
        "Linear{32, 10}": ["Linear{32}", "Linear{}", "Linear{32, 10, true, 5, 6, 7}",
                           "Linear{\"a\", 10}", "Linear{-32, 10}", "Linear{32.5, 10}"],
        "Conv2d{1, 8,": ["Conv2d{0, 8,", "Conv2d{1, 8, groups=3,", "Conv2d{nil, 8,",
                         "Conv2d{1, 8, device=\"cuda\","],
        "nn.Flatten{}": ["nn.Flatten", "nn.Flatten{1, \"x\"}", "nn.Flatten{start_dimm=1}"],
        "nn.ReLU{}": ["nn.ReLU", "nn.ReLU{inplace=\"a\"}", "nn", "5", "\"ReLU\"", "true", "{5}"],
        "nn.GELU{}": ["nn.GELU{approximate=\"tan\"}", "nn.GELU", "strata", "strata.job", "print{}"],
    }
    for right, wrongs in values.items():
        for wrong in wrongs:
            yield Case("%s for %s" % (wrong, right), replaced(right, wrong), needles=["wrong.lua:"])


def wrong_shapes():
    for right, wrong, needle in [
            ("Linear{128, 32", "Linear{127, 32", "127"), ("Linear{32, 10}", "Linear{33, 10}", "33"),
            ("LayerNorm{32,", "LayerNorm{31,", "31"), ("Conv2d{1, 8,", "Conv2d{3, 8,", "3"),
            ("kernel_size=3, padding=1", "kernel_size=30", "30"),
            ("MaxPool2d{2, stride=2}", "MaxPool2d{20}", "20"),
            ("input = { shape = {1, 8, 8}", "input = { shape = {1, 8, 9, 9, 9}", "9"),
            ("nn.Flatten{}", "nn.Flatten{start_dim=7}", "7"),
            ("nn.Flatten{}", "nn.Identity{}", "128")]:
        yield Case("shape " + wrong, replaced(right, wrong), needles=["wrong.lua:", needle])


def wrong_losses():
    for wrong, needle in [("MSELoss{}", "int64 (4,)"), ("NLLLoss{weight={1, 2}}", "2 classes"),
                          ("BCEWithLogitsLoss{}", "float32 (4, 10)")]:
        for command in ["plan", "train"]:
            yield Case("loss %s %s" % (command, wrong), replaced("CrossEntropyLoss{}", wrong),
                       needles=["wrong.lua:" + line_of("nn.CrossEntropyLoss"), "cannot compare",
                                "layer 8 Linear(32, 10)", needle], command=command)


def wrong_values():
    values = {
        "steps = 1": ["steps = -1", "steps = \"many\"", "steps = 1.5", "steps = {}",
                      "steps = 1, epochs = 2", "steps = 1, epochs = -1"],
        "seed = 7": ["seed = \"x\"", "seed = 1.5", "seed = {}"],
        "clip = 1.0": ["clip = -1", "clip = \"x\""],
        "schedule = \"1f1b\"": ["schedule = \"1f1\"", "schedule = \"\"", "schedule = 5",
                                "schedule = \"zb_h1x\"", "schedule = {}"],
        "partition = \"parameters\"": [
            "partition = \"parameter\"", "partition = {0, 5}", "partition = {1, 9}",
            "partition = {0, 6, 3, 9}", "partition = {0, 4, 8}", "partition = {0, 4, 10}",
            "partition = \"type:nosuch\"", "partition = \"type:(\"", "partition = 3",
            "partition = function() return {0} end", "partition = function() return nil end",
            "partition = function() error(\"mine\") end", "partition = \"tiem\"",
            "partition = \"memroy\""],
        "parallel = { pipe = 2 }": [
            "parallel = { pipe = 0 }", "parallel = { pipe = -1 }", "parallel = { pipe = 100 }",
            "parallel = { pipe = \"two\" }", "parallel = { pipe = 1.5 }", "parallel = \"2x\"",
            "parallel = { pipe = 2, data = 0 }"],
        "batch = { micro_batches = 2, micro_batch_size = 4 }": [
            "batch = { micro_batches = 0, micro_batch_size = 4 }", "batch = { size = 7 }",
            "batch = { size = 7, micro_batches = 2 }", "batch = 8", "batch = {}",
            "batch = { size = 8, micro_batches = 2, micro_batch_size = 5 }",
            "batch = { micro_batches = \"2\", micro_batch_size = {} }"],
        "optimizer = { \"sgd\", lr = 0.1, momentum = 0.9 }": [
            "optimizer = { \"sdg\", lr = 0.1 }", "optimizer = { \"sgd\", lr = -1 }",
            "optimizer = { \"sgd\", lr = \"x\" }", "optimizer = { \"sgd\", lr = 0.1, betas = {0.9} }",
            "optimizer = { \"adam\", betas = {0.9} }", "optimizer = { \"adam\", betas = {2, 3} }",
            "optimizer = { lr = 0.1, \"adamw\", eps = -1 }", "optimizer = 5",
            "optimizer = { \"sgd\", nesterov = true }", "optimizer = {}"],
        "lr_schedule = { \"cosine\", warmup = 2 }": [
            "lr_schedule = { \"cosin\" }", "lr_schedule = { \"cosine\", warmup = -2 }",
            "lr_schedule = 5", "lr_schedule = { \"step\" }"],
        "loss = nn.CrossEntropyLoss{}": [
            "loss = nn.ReLU{}", "loss = 5", "loss = \"cross_entropy\"", "loss = nn.CrossEntropyLoss",
            "loss = nn.CrossEntropyLoss{reduction=\"men\"}"],
        "name = \"small\"": ["name = 5", "name = {}", "name = \"small\", device = \"gpu\"",
                             "name = \"small\", transport = \"tcp\"",
                             "name = \"small\", transport = \"nccl\"",
                             "name = \"small\", threads = -1",
                             "name = \"small\", zero = 3", "name = \"small\", hang_timeout = -5",
                             "name = \"small\", eval = { evry = 1 }",
                             "name = \"small\", freeze = {99}",
                             "name = \"small\", freeze = {\"nosuch\"}"],
        "dtype = \"float32\"": ["dtype = \"float33\"", "dtype = 32", "dtype = \"complex64\""],
        "input = { shape = {1, 8, 8},": ["input = { shape = {1, -8, 8},", "input = { shape = 0,",
                                         "input = { shape = \"a\",", "input = {"],
        "train = strata.data.images{": ["train = strata.data.image{", "train = 5, x = {",
                                        "train = strata.data.digits{", "test = strata.data.text{"],
    }
    for right, wrongs in values.items():
        for wrong in wrongs:
            yield Case("value " + wrong, replaced(right, wrong), command="train")


def syntax_errors():
    for right, wrong in [("layers = {", "layers = "), ("nn.ReLU{}", "nn.ReLU{"),
                         ("name = \"small\"", "name = \"small"), ("return strata.job {", "return strata.job ("),
                         ("local strata", "locl strata"), ("nn.GELU{},", "nn.GELU{} nn.GELU{},"),
                         ("seed = 7", "seed == 7"), ("clip = 1.0", "clip = 1.0.0"),
                         ("schedule = \"1f1b\"", "schedule = 'unclosed"), ("seed = 7", "seed = 7 --[[")]:
        yield Case("syntax " + wrong, replaced(right, wrong), needles=["wrong.lua:"])


def scripts_that_fail():
    head = "local strata = require \"strata\"\n"
    for name, text, needles in [
            ("indexes nil", "local t\nreturn t.x", ["wrong.lua:3"]),
            ("calls nil", "nosuch()", ["wrong.lua:2", "nosuch"]),
            ("raises text", "error(\"mine\")", ["mine"]),
            ("raises a table", "error({1})", ["wrong.lua"]),
            ("returns nothing", "local x = 1", ["wrong.lua"]),
            ("returns a number", "return 5", ["wrong.lua"]),
            ("returns a function", "return function() end", ["wrong.lua"]),
            ("recurses", "local function f() return 1 + f() end\nf()", ["wrong.lua"]),
            ("requires nothing", "require \"nosuch\"", ["nosuch"]),
            ("requires above", "require \"../x\"", ["wrong.lua"]),
            ("opens a file", "io.open(\"/etc/passwd\")", ["io"]),
            ("runs a command", "os.execute(\"true\")", ["os"]),
            ("wants ffi", "require \"ffi\"", ["ffi"]),
            ("loads bytecode", "assert(load(\"\\27LJ\"))", ["wrong.lua"]),
            ("bad string", "return (\"x\"):rep(1e10)", ["wrong.lua"]),
            ("no strata field", "return strata.jobb{}", ["jobb", "job"])]:
        yield Case("script " + name, head + text + "\n", needles=needles)
    yield Case("script is bytecode", "\x1bLJ\x02\x00", needles=["wrong.lua"])
    yield Case("script is empty", "", needles=["wrong.lua"])


def wrong_functions():
    for wrong, needles in [
            ("function(x) return x:flaten(1) end", ["flaten", "flatten"]),
            ("function(x) return F.flaten(x, 1) end", ["flaten", "flatten"]),
            ("function(x) return \"text\" end", ["text"]),
            ("function(x) end", []),
            ("function(x) return x:flatten(\"a\") end", ["flatten"]),
            ("function(x) return x:flatten(9) end", ["9"]),
            ("function(x) return x.nosuch end", []),
            ("function(x) return x + \"a\" end", []),
            ("function(x) error(\"mine\") end", ["mine"]),
            ("function(x) return nothing.x end", ["nothing"]),
            ("function(x) return x:view(3, 5) end", []),
            ("function(x) return F.save(x, \"f\") end", ["save"])]:
        yield Case("function " + wrong, replaced("nn.Flatten{}", wrong),
                   needles=["wrong.lua:" + line_of("nn.Flatten{}")] + needles)


def wrong_flags(generator):
    for flag in ["steps", "pipe", "micro_batches", "schedule", "partition", "optimizer.lr", "seed", "width"]:
        wrong = misspelled(flag, generator)
        yield Case("flag --" + wrong, flags=["--%s=1" % wrong], needles=[wrong, flag])
    for flag in ["--pipe=two", "--pipe=-1", "--pipe=0", "--pipe=99", "--pipe", "--pipe=",
                 "--partition=0,5", "--partition=5", "--partition=a,b", "--batch.size=x",
                 "--micro_batches=0", "--optimizer.lr=fast", "--optimizer.lrr=1", "--optimizer=nosuch",
                 "--schedule=none", "--steps=1e99", "--steps=-5", "--seed=x", "--device=tpu",
                 "--transport=smoke", "--width=wide", "--data=0", "--model=2", "--zero=3",
                 "--parallel.pipes=2", "--nosuch", "---", "--=5", "--losses=maybe"]:
        yield Case("flag " + flag, flags=[flag], command="train")
    for name, raw, needles in [
            ("no command", [], []),
            ("wrong command", ["trian", "wrong.lua"], ["trian", "train"]),
            ("no script", ["train"], []),
            ("no such script", ["train", "nosuch.lua"], ["nosuch.lua"]),
            ("a folder", ["train", "."], []),
            ("two scripts", ["train", "wrong.lua", "wrong.lua"], []),
            ("run nothing", ["run"], []),
            ("run no such file", ["run", "nosuch.lua"], ["nosuch.lua"]),
            ("verify no script", ["verify"], []),
            ("repl no such script", ["repl", "nosuch.lua"], ["nosuch.lua"])]:
        yield Case("command: " + name, raw=raw, needles=needles)


def all_cases():
    generator = random.Random(20261121)
    cases = []
    for family in [misspelled_keys(generator), misspelled_members(generator),
                   misspelled_layers(generator), misspelled_arguments(generator),
                   wrong_arguments(), wrong_shapes(), wrong_losses(), wrong_values(), syntax_errors(),
                   scripts_that_fail(), wrong_functions(), wrong_flags(generator)]:
        cases.extend(family)
    return cases


def run(case, strata, folder, seconds):
    """Returns what is wrong with the answer, the answer, and the seconds it took."""
    with open(os.path.join(folder, "wrong.lua"), "w", encoding="latin-1") as file:
        file.write(case.script)
    line = case.raw if case.raw is not None else [case.command, "wrong.lua"] + case.flags
    start = time.monotonic()
    try:
        done = subprocess.run([strata] + line, cwd=folder, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=seconds)
    except subprocess.TimeoutExpired:
        return ["no answer in %g s" % seconds], "", seconds
    spent = time.monotonic() - start
    answer = (done.stderr + done.stdout).decode("utf-8", "replace")
    wrong = []
    if done.returncode != 2:
        wrong.append("exit code %d, not 2" % done.returncode)
    if not done.stderr.strip():
        wrong.append("nothing on stderr")
    wrong += ["does not name %r" % needle for needle in case.needles if needle not in answer]
    wrong += ["shows %r" % word for word in FORBIDDEN if word in answer]
    if len(answer) > 4000:
        wrong.append("%d characters" % len(answer))
    return wrong, answer, spent


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("strata")
    parser.add_argument("models", help="not used; what every test here is given")
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--only", default="")
    parser.add_argument("--show", action="store_true")
    options = parser.parse_args()
    strata = os.path.abspath(options.strata)
    failures, slowest, cases = 0, (0.0, ""), all_cases()
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "wrong.lua"), "w") as file:
            file.write(RIGHT)
        right = subprocess.run([strata, "plan", "wrong.lua"], cwd=folder, stdin=subprocess.DEVNULL,
                               capture_output=True, text=True)
        if right.returncode != 0:
            sys.exit("the right script is refused: " + right.stderr)
        for case in cases:
            if options.only not in case.name:
                continue
            wrong, answer, spent = run(case, strata, folder, options.seconds)
            slowest = max(slowest, (spent, case.name))
            if options.show or wrong:
                print("== %s (%.2f s)\n%s" % (case.name, spent, answer.rstrip()))
            for problem in wrong:
                print("!! " + problem)
            failures += bool(wrong)
    print("%d cases, %d wrong; the slowest took %.2f s (%s)" % (len(cases), failures, *slowest))
    return 1 if failures or len(cases) < 200 else 0


if __name__ == "__main__":
    sys.exit(main())
