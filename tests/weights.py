#!/usr/bin/env python3
"""Weights of transformers and torchvision go in, compute what these compute, and go out again.

usage: weights.py STRATA MODELS TEST...

testdata/weights holds tiny random models as the libraries saved them and what they computed
(make_weights.py); `loads_there` asks the libraries themselves, where they are installed.
"""

import glob
import json
import os
import random
import re
import shutil
import struct
import subprocess
import sys
import time
import zlib

import program
from program import require

KILLS = 8
NO_WEIGHTS = "strata: these are no trained weights: give --weights=FILE or --resume=SAVE\n"
DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "testdata")


def golden(name):
    with open(os.path.join(DATA, "weights", name + ".json")) as file:
        return json.load(file)


def source(name):
    return os.path.join(DATA, "weights", golden(name)["source"])


def model(strata, name):
    """Of models/, or where there is none with the names that the map knows, beside the weights."""
    own = os.path.join(DATA, "weights", name + ".lua")
    return own if os.path.exists(own) else os.path.join(strata.models, name + ".lua")


def options(name):
    pairs = (flag[2:].split("=") for flag in golden(name)["flags"])
    return {key: json.loads("[%s]" % value) if "," in value else json.loads(value) for key, value in pairs}


def compute(strata, name, weights, **keys):
    """Logits and the losses of five steps, of a job that begins with these weights."""
    for path in ["weights.lua", "weights/%s.json" % name]:
        shutil.copy(os.path.join(DATA, path), strata.path(os.path.basename(path)))
    out = strata.run("run", "weights.lua", model(strata, name), name + ".json", json.dumps(options(name)),
                     json.dumps({"weights": weights, **keys}))
    return json.loads([line for line in out.splitlines() if line.startswith("{")][-1])


# Losses of five steps differ from those of the file by 1.01e-5 where MKL multiplies without AVX-512.
GOLDEN_BOUND = 2e-5


def require_golden(name, got):
    for what in ["logits", "losses"]:
        expected = golden(name)[what]
        require(len(got[what]) == len(expected), "as many " + what, got)
        worst = max(abs(a - b) / max(1, abs(b)) for a, b in zip(got[what], expected))
        require(worst <= GOLDEN_BOUND, "%s of %s within %g" % (what, name, GOLDEN_BOUND), worst)


def mapped(name, path=None):
    return {"from": path or source(name), "map": name}


def check(strata, name):
    """Directly, on two stages too, and through a file that import wrote."""
    require_golden(name, compute(strata, name, mapped(name)))
    require_golden(name, compute(strata, name, mapped(name), parallel={"pipe": 2}, transport="threads"))
    strata.run("import", source(name), "--model=" + model(strata, name), "--map=" + name, "-o", "in.safetensors",
               *golden(name)["flags"], says=["in.safetensors: ", " tensors of "], lacks="config.json")
    require_golden(name, compute(strata, name, "in.safetensors"))
    strata.run("inspect", "in.safetensors", says="F32")
    leaves(strata, name)


def leaves(strata, name):
    """What five steps made of it goes out, and comes in again with the same bits."""
    compute(strata, name, mapped(name), save={"dir": "saves"})
    shown = strata.run("export", "saves", "--map=" + name, "--output=out", "--shard=20KB")
    require("model.safetensors.index.json" in shown or "in model.safetensors" in shown, "files", shown)
    theirs = compute(strata, name, mapped(name, "out"))
    require(theirs == compute(strata, name, "saves"), "the same bits of out and of the save", theirs)
    came = strata.run("inspect", source(name))
    for key, (_, shape, _) in tensors_of(strata.path("out")).items():
        text = "(%s)" % (str(shape[0]) + "," if len(shape) == 1 else ", ".join(map(str, shape)))
        require(any(line.split()[:1] == [key] and text in line for line in came.splitlines()),
                "%s %s, as it came" % (key, text), came)


def averages(strata):
    """What goes out of a training with averages is what its evaluations saw."""
    strata.write("net.lua", """
local strata = require "strata"
local nn = strata.nn
return strata.job{layers = {nn.Flatten{}, nn.Linear{64, 10}}, loss = nn.CrossEntropyLoss{}, ema = 0.9,
  batch = {micro_batches = 2, micro_batch_size = 16}, optimizer = {"sgd", lr = 0.5}, steps = 20,
  data = {train = strata.data.digits{}, test = strata.data.digits{split = "test"}}, save = {dir = "saves"}}
""")
    strata.run("train", "net.lua")
    lines = {}
    for name, flags in [("average", []), ("value", ["--averages=false"])]:
        shown = strata.run("export", "saves", "--output=" + name, *flags)
        require(("2 tensors as their averages (ema)" in shown) == (not flags), "what went out", shown)
        lines[name] = strata.run("eval", "net.lua", "--weights=" + name)
    require(lines["average"] == strata.run("eval", "net.lua", "--weights=saves"), "the averages' loss", lines)
    require(lines["value"] != lines["average"], "another loss of the values", lines)
    shown = strata.run("import", "saves", "--model=net.lua", "-o", "in.safetensors",
                       says="2 tensors as their averages (ema)")
    strata.run("inspect", "saves", "--merge=merged.safetensors")
    for path in ["in.safetensors", "merged.safetensors"]:
        shown = strata.run("eval", "net.lua", "--weights=" + path)
        require(shown == lines["average"], "the averages of " + path, shown)


def tensors_of(folder):
    """The tensors of a folder's safetensors files."""
    tensors = {}
    for path in sorted(glob.glob(folder + "/*.safetensors")):
        tensors.update(program.read_tensors(path))
    return tensors


class gpt2:
    """Of the shards and the bf16 of transformers, what check() says, and transformers' greedy texts."""

    def __init__(self, strata):
        self.strata = strata
        self.job = [model(strata, "gpt2"), "--device=cpu", *golden("gpt2")["flags"]]
        self.weights = ["--weights=" + source("gpt2"), "--weights.map=gpt2"]
        self.texts = golden("gpt2")["greedy"]
        self.prompts = ["--prompt=" + words(text["prompt"]) for text in self.texts]
        self.expected = ["[%d] %s" % (i, words(text["text"])) for i, text in enumerate(self.texts, 1)]

    def _generate(self, *more, greedy=True, **options):
        return self.strata.run("generate", *self.job, *self.weights, "--tokenizer=numbers",
                               *["--temperature=0"] * greedy, *more, **options)

    def _drawn(self, *more):
        return re.findall(r"^\[\d\] .*$", self._generate(*self.prompts, *more, greedy=False), re.M)

    def computes_what_transformers_computes(self):
        check(self.strata, "gpt2")

    def has_its_sizes_in_config_json(self):
        config = self.strata.json("out/config.json")
        expected = {"n_embd": 16, "n_layer": 2, "n_head": 4, "vocab_size": 37, "n_positions": 8}
        require({key: config[key] for key in expected} == expected, "GPT-2's sizes", config)

    def is_inspected_by_shard(self):
        self.strata.run("inspect", source("gpt2"), says=["model-00002-of-00002.safetensors: safetensors", "BF16"])

    def gives_the_greedy_texts_on_every_grid(self):
        """With --no-keep the whole text is run for every token."""
        for more in ["--pipe=1", "--pipe=2", "--pipe=3", "--pipe=4", "--model=2", "--pipe=2 --model=2",
                     "--pipe=2 --data=2", "--pipe=2 --transport=threads", "--pipe=2 --no-keep", "--pipe=2 --eval.batch=4"]:
            shown = self._generate(*self.prompts, *more.split(), says="\n".join(self.expected) + "\n")
            require(("keys and values" in shown) == ("--no-keep" not in more), "what is kept", shown)

    def shows_one_text_as_it_comes(self):
        self._generate(self.prompts[2], "--pipe=2", says=[
            words(self.texts[2]["text"]) + "\n", "; the text ended at the length of the model's input"])

    def gives_as_many_tokens_as_are_asked_for(self):
        self._generate(self.prompts[2], "--tokens=2", says="2 tokens in ", lacks="ended at")

    def draws_the_same_on_every_grid(self):
        one = self._drawn("--pipe=1")
        require(len(one) == 4 and one != self.expected, "draws", one)
        for more in [["--pipe=4"], ["--pipe=2", "--data=2"], ["--pipe=2", "--model=2", "--no-keep"]]:
            require(self._drawn(*more) == one, "the same draws with %s" % more, one)
        require(self._drawn("--pipe=1", "--seed=2") != one, "others with another seed", one)

    def refuses_wrong_prompts(self):
        for prompt, why in [([], "give --prompt=TEXT"),
                            (["--prompt=" + words(range(8))], "prompt 1 has 8 tokens; the model reads 8"),
                            (["--prompt=Once upon"], "got \"Once\"")]:
            self._generate(*prompt, code=2, says=why)

    def refuses_what_generates_no_text(self):
        self.strata.run("generate", *self.job, *self.weights, "--prompt=a", code=2, says="the job's data has no tokenizer")
        self.strata.run("generate", "digits.lua", "--prompt=a", "--weights=none", code=2, says="expected a language model")

    def asks_for_weights_before_ranks_start(self):
        shown = self.strata.run("generate", *self.job, "--tokenizer=numbers", self.prompts[0], code=2)
        require(shown == NO_WEIGHTS, NO_WEIGHTS, shown)


def words(tokens):
    return " ".join(map(str, tokens))


def bert(strata):
    check(strata, "bert")


def llama(strata):
    check(strata, "llama")
    require(not os.path.exists(strata.path("out/config.json")), "the map does not know all of it", "")
    flags = [flag for flag in golden("llama")["flags"] if "heads" not in flag]
    flags += ["--heads=2", "--kv_heads=1", "--theta=5000"]  # which fit the tensors
    shown = strata.run("import", source("llama"), "--model=" + model(strata, "llama"), "--map=llama",
                       "-o", "other.safetensors", *flags)
    trained = strata.run("train", model(strata, "llama"), "--weights=" + source("llama"), "--weights.map=llama",
                         "--steps=1", "--device=cpu", *flags)
    for text in ["num_attention_heads 4, the job's layers have 2", "num_key_value_heads 2, the job's layers have 1",
                 "rope_theta 10000, the job's layers have 5000"]:
        require("llama/config.json says " + text in shown, "what config.json says otherwise", shown)
        require("llama/config.json says " + text in trained, "in a training", trained)


def adapters(strata):
    """Low-rank parts beside published weights: trained, written as PEFT does, read back and merged."""
    job, flags = model(strata, "llama"), ["--device=cpu", *golden("llama")["flags"]]
    adapt = ["--adapt=lora", "--adapt.rank=2", "--adapt.alpha=8", "--adapt.layers=q_proj|v_proj|down_proj"]
    base = ["--weights=" + source("llama"), "--weights.map=llama"]
    shown = strata.run("train", job, *flags, *adapt, *base, "--steps=3", "--save.dir=parts")
    require("begins with the weights of" in shown and "low-rank" not in shown, "nothing is said of parts", shown)
    strata.run("export", "parts", "--adapter", "-o", "peft", says="in adapter_model.safetensors")
    strata.run("export", "parts", "--adapter", "--map=llama", "-o", "named")
    require(strata.json("named/adapter_config.json") == strata.json("peft/adapter_config.json"), "the training's map", "")
    strata.run("export", "parts", "--merge=" + source("llama"), "-o", "merged",
               says=["6 tensors changed", "in model.safetensors, config.json\n"])
    require(strata.json("merged/config.json")["num_attention_heads"] == 4, "the folder's config.json", "")
    with open(strata.path("peft/adapter_config.json")) as file:
        config = json.load(file)
    require((config["peft_type"], config["r"], config["lora_alpha"]) == ("LORA", 2, 8), "PEFT's options", config)
    require("model.layers.0.self_attn.q_proj" in config["target_modules"], "the names of modules", config)

    # The merged weight is W + alpha / rank B A, rounded to the type of W.
    name = "model.layers.1.mlp.down_proj"
    a, b = (floats(strata.path("peft"), "base_model.model.%s.lora_%s.weight" % (name, part)) for part in "AB")
    before, after = (floats(path, name + ".weight") for path in [source("llama"), strata.path("merged")])
    inputs = len(a) // 2
    exact = [before[i] + 4 * sum(b[i // inputs * 2 + r] * a[r * inputs + i % inputs] for r in (0, 1))
             for i in range(len(before))]
    worst = max(abs(x - y) / max(abs(y), 1e-3) for x, y in zip(after, exact))
    require(worst <= 2 ** -8 and exact != before and any(b), "the merged weight", worst)

    losses = [float(re.search(r"test loss (\S+)", strata.run("eval", job, *flags, *how)).group(1)) for how in [
        [*adapt, *base, "--resume=parts"], [*adapt, *base, "--adapt.from=peft"],
        ["--weights=merged", "--weights.map=llama"]]]
    require(losses[0] == losses[1] and abs(losses[2] - losses[0]) < 2e-3, "one loss of all three", losses)
    strata.run("eval", job, *flags, *adapt, *base, code=2, says="its low-rank parts are not given")
    strata.run("export", "parts", "--map=llama", "-o", "none", code=2, says="--merge=WEIGHTS adds them")
    shown = strata.run("plan", job, *flags, *adapt)
    require(re.search(r"trains 416 of \S+ parameters, ", shown), "how many parameters are trained", shown)


_PERCEPTRON = """
local strata = require "strata"
local nn = strata.nn
local LowRank = strata.layer {
  name = "LowRank",
  init = function(self) self.lora_A, self.lora_B = nn.Linear{32, 4, bias=false}, nn.Linear{4, 32, bias=false} end,
  forward = function(self, x) return x + self.lora_B(self.lora_A(x)) end,
}
return strata.job {
  layers = { nn.Flatten{}, nn.Linear{64, 32, name="first"}, nn.ReLU{}, LowRank{name="own"}, nn.Linear{32, 10, name="last"} },
  loss = nn.CrossEntropyLoss{},
  batch = { micro_batches = 2, micro_batch_size = 16 },
  optimizer = { "adamw", lr = 1e-2 },
  data = { train = strata.data.digits{}, test = strata.data.digits{split="test"} },
  steps = 5,
  device = "cpu",
}
"""


def adapter_bases(strata):
    """Parts are added to the values beside which they were trained, and another base is named."""
    strata.write("net.lua", _PERCEPTRON)

    def loss(*flags, command="eval", says=()):
        shown = strata.run(command, "net.lua", *flags, says=says)
        return float(re.search(r"test loss (\S+)", shown).group(1))

    strata.run("train", "net.lua", "--ema=0.9", "--save.dir=base")
    strata.run("train", "net.lua", "--seed=7", "--save.dir=other")
    adapt = ["--adapt=lora", "--adapt.rank=2", "--adapt.alpha=8", "--adapt.layers=first"]
    beside = [*adapt, "--weights=base"]
    for name, ema, flag in [("values", [], []), ("averages", ["--ema=0.9"], []),
                            ("last", ["--ema=0.9"], ["--averages=false"])]:
        parts = "parts_" + name
        strata.run("train", "net.lua", *beside, *ema, "--save.dir=" + parts)
        strata.run("export", parts, "--merge=base", "-o", "merged_" + name, *flag)
        merged = loss("--weights=merged_" + name)
        resumed = loss(*beside, "--resume=" + parts, *ema)
        require(flag or abs(merged - resumed) < 1e-4, "the loss of the training", [name, merged, resumed])
        strata.run("export", parts, "--adapter", "-o", "peft_" + name, *flag)
        again = loss(*beside, "--adapt.from=peft_" + name)
        require(abs(merged - again) < 1e-4, "the same of PEFT's files", [name, merged, again])
    strata.run("export", "parts_values", "--merge=other", "-o", "wrong", says="trained beside base; nothing checks")
    other = [*adapt, "--weights=other"]
    loss(*other, "--adapt.from=parts_values", says="which were trained beside other weights")
    strata.run("eval", "net.lua", *other, "--resume=parts_values", code=2, says="trained beside other weights")
    loss(*beside, "--adapt.alpha=80", "--resume=parts_values", says="low_rank")
    strata.run("train", "net.lua", *beside, "--adapt.train=last.bias", "--save.dir=more")
    strata.run("eval", "net.lua", *beside, "--resume=more", code=2, says="adapt.train was")
    modules = strata.json("peft_values/adapter_config.json")["modules_to_save"]
    require(modules is None, "no other modules", modules)
    strata.run("export", "more", "--adapter", "-o", "peft_more")
    modules = strata.json("peft_more/adapter_config.json")["modules_to_save"]
    require(modules == ["last"], "names of modules", modules)
    map_of_its_own = "weights = { 'merged_values', map = function(ours) return ours end },\n  steps = 5,"
    strata.write("mapped.lua", _PERCEPTRON.replace("steps = 5,", map_of_its_own))
    strata.run("train", "mapped.lua", *adapt, "--save.dir=mapped")
    strata.run("export", "mapped", "--adapter", "-o", "peft_mapped")
    require(strata.json("peft_mapped/adapter_config.json")["target_modules"] == ["first"], "our names", "")
    strata.run("import", "base", "--model=net.lua", "--output=in.safetensors")
    strata.run("inspect", "in.safetensors", says="own.lora_A.weight")


def floats(folder, name):
    """The numbers of a tensor in a folder."""
    dtype, _, content = tensors_of(folder)[name]
    if dtype == "BF16":  # the upper half of a float32
        content = b"".join(b"\0\0" + content[i:i + 2] for i in range(0, len(content), 2))
    return list(struct.unpack("<%df" % (len(content) // 4), content))


def vit(strata):
    check(strata, "vit")
    strata.run("inspect", source("vit") + "/pytorch_model.bin", says=": PyTorch, ")


def resnet(strata):
    check(strata, "resnet")


def convnext(strata):
    check(strata, "convnext")


HEAD = """
local strata = require "strata"
local nn = strata.nn
return strata.job{layers = {nn.Flatten{}, nn.Linear{64, 32, name = "fc1"}, nn.ReLU{}, nn.Linear{32, 10, name = "fc2"}},
  loss = nn.CrossEntropyLoss{}, batch = {micro_batches = 2, micro_batch_size = 16}, optimizer = {"sgd", lr = 0.5},
  data = {train = strata.data.digits{}, test = strata.data.digits{split = "test"}}, steps = 20, device = "cpu", %s}
"""


class a_new_head:
    """Another number of classes: refused by tensor, unless the head is excepted or strict is false."""

    def __init__(self, strata):
        self.strata = strata
        self.flags = [flag for flag in golden("resnet")["flags"] if "classes" not in flag] + [
            "--classes=7", "--steps=1", "--device=cpu", "--micro_batches=1", "--micro_batch_size=2",
            "--weights=" + source("resnet")]
        for name, weights in [("old", ""), ("new", 'weights = {"old", except = "fc2"}')]:
            strata.write(name + ".lua", HEAD % weights)
            shown = strata.run("train", name + ".lua", "--save.dir=" + name)
        self.trained = re.search(r"^test loss .*$", shown, re.M).group()

    def is_refused_by_tensor(self):
        self.strata.run("train", "resnet.lua", *self.flags, "--weights.map=resnet", code=2, says=[
            'tensor "fc.weight" is float32 (5, 16), this job\'s "fc.weight" is float32 (7, 16)', "--weights.strict=false"])

    def keeps_its_initial_values_where_excepted(self):
        self.strata.run("train", "resnet.lua", *self.flags, "--weights.map=resnet", "--weights.except=fc",
                        says="except, so with their initial values: fc.weight, fc.bias\n")

    def is_left_out_where_not_strict(self):
        self.strata.run("train", "resnet.lua", *self.flags, "--weights.map=resnet", "--weights.strict=false",
                        says="of another shape, or dtype")

    def is_named_where_the_exception_is_misspelt(self):
        self.strata.run("train", "resnet.lua", *self.flags, "--weights.except=fcc", code=2, says='did you mean "fc"?')

    def that_nobody_trained_is_not_evaluated(self):
        self.strata.run("eval", "new.lua", code=2, says="\nleft out by weights.except: fc2.weight, fc2.bias\n")

    def that_was_trained_is_read_from_a_given_save(self):
        """The script's except is of the script's own file."""
        self.strata.run("eval", "new.lua", "--weights=new", says=self.trained)

    def of_another_job_is_said_to_be_one(self):
        self.strata.run("eval", "new.lua", "--weights=new", "--ema=0.9",
                        says="the save was trained by another job: ema: 0 against 0.9")


MAPS = """
local strata = require "strata"
local nn = strata.nn
local maps = {
  table = {{"head.{p}", "fc.{p}"}, {"0.{p}", "conv1.{p}"}, ignore = {"layer{n}.{rest*}", "bn1.{p}"}},
  named = function(ours)
    if ours == "0.weight" then return "conv1.weight" end
    return (ours:gsub("head", "fc"))
  end,
}
local opt = strata.options{rules = "table"}
return strata.job {
  input = {shape = {3, 32, 32}},
  layers = {nn.Conv2d{3, 64, kernel_size = 7, bias = false}, nn.ReLU{}, nn.AdaptiveAvgPool2d{1}, nn.Flatten{},
            nn.Linear{64, 16}, nn.Linear{16, 5, name = "head"}},
  loss = nn.CrossEntropyLoss{}, batch = {micro_batches = 1, micro_batch_size = 2}, steps = 1, device = "cpu",
  data = {train = strata.data.images{shape = {3, 32, 32}, classes = 5}},
  weights = {"%s", map = maps[opt.rules], except = 4},
}
"""


def own_maps(strata):
    """A map of one's own: a table of patterns, a function."""
    strata.write("job.lua", MAPS % source("resnet"))
    strata.run("train", "job.lua", says="begins with the weights of", lacks="nobody takes")
    strata.run("train", "job.lua", "--rules=named", code=2,
               says="and nobody takes it: bn1.bias, bn1.num_batches_tracked")
    strata.run("train", "job.lua", "--rules=named", "--weights.strict=false")
    for name in ["table", "named"]:
        strata.write("in.lua", (MAPS % source("resnet")).replace('rules = "table"', 'rules = "%s"' % name))
        strata.run("import", source("resnet"), "--model=in.lua", "-o", name + ".safetensors", "--strict=false",
                   says=name + ".safetensors: 3 tensors of ")
    strata.run("repl", code=1, stdin="strata.maps.gpt2[1][2]\nstrata.maps.gtp2\n",
               says=["[transformer.]wte.weight", 'did you mean "gpt2"?'])


def wrong_sources(strata):
    """What is no weights, or another model's, is refused by name; nothing is written."""
    def refused(*arguments, code=2):
        return strata.run("import", *arguments, "--model=" + model(strata, "gpt2"), "-o", "no.safetensors",
                          *golden("gpt2")["flags"], code=code)

    shown = refused(source("bert"), "--map=gpt2")
    for text in ["does not fit", "wte.weight (theirs ", "and nobody takes it: bert.embeddings"]:
        require(text in shown, text, shown)
    require('did you mean "gpt2"?' in refused(source("gpt2"), "--map=gpt"), "a map's name", "")
    require(": none of its tensors (" in refused(source("bert"), "--strict=false"), "no file of no tensors", "")
    with open(strata.path("evil.pt"), "wb") as file:
        file.write(b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19\x2eM\xe9\x03.}.cos\nsystem\n(U\x02lstR.")
    require('"os.system"' in refused("evil.pt", code=1), "the function's name", "")
    require("No such file" in refused("none.safetensors", code=1), "a missing file", "")
    require(not os.path.exists(strata.path("no.safetensors")), "no file", os.listdir(strata.folder))


class predictions:
    """Outputs of data.test in its order."""

    def __init__(self, strata):
        self.strata = strata
        self.flags = ["digits.lua", "--weights=runs", "--device=cpu", "--threads=1"]
        self.last = ["digits.lua", "--save.dir=runs", "--resume"]
        strata.run("train", "digits.lua", "--steps=30", "--save.dir=runs", "--device=cpu")
        self.one = self._array("one.npy", "--pipe=1")

    def _array(self, name, *more):
        self.strata.run("predict", *self.flags, "--output=" + name, *more,
                        says=name + ": 359 samples, with runs/step-00000030")
        data = content(self.strata.path(name))
        require(b"'shape': (359, 10)" in data[:256], "the array's shape", data[:100])
        return struct.unpack("<3590f", data[256:])

    def have_the_same_bits_on_every_grid(self):
        for i, grid in enumerate([["--pipe=2"], ["--pipe=2", "--data=2"], ["--pipe=2", "--transport=threads"]]):
            require(self._array("grid%d.npy" % i, *grid) == self.one, "the same bits with %s" % grid, "")

    def of_other_batches_are_the_same_within_rounding(self):
        other = self._array("other.npy", "--eval.batch=7")
        require(max(abs(a - b) for a, b in zip(self.one, other)) < 1e-5, "the same of other batches", "")

    def as_classes_are_the_largest_outputs(self):
        self.strata.run("predict", *self.flags, "--output=out.csv", "--as_classes")
        lines = self.strata.read("out.csv").splitlines()
        require(lines[0] == "sample,class,probability" and len(lines) == 360, "a line for each", lines[:3])
        for sample, line in enumerate(lines[1:]):
            number, label, probability = line.split(",")
            row = self.one[10 * sample:10 * sample + 10]
            require(int(number) == sample and row[int(label)] == max(row) and 0.1 <= float(probability) <= 1,
                    "the largest output", line)
        self.strata.run("predict", *self.flags, "--output=out.csv", code=1, says="File exists")

    def are_evaluated(self):
        self.strata.run("eval", *self.flags,
                        says=re.compile(r"^test loss \d\.\d{4}  accuracy 0\.\d{3}  \(359 samples\)$", re.M))

    def of_the_last_save_take_any_grid(self):
        """Also one with which a training may not go on."""
        for grid in [[], ["--data=2"], ["--micro_batches=1", "--pipe=1"]]:
            self.strata.run("eval", *self.last, *grid, says="test loss")
        self.strata.run("train", *self.last, "--data=2", "--steps=40", code=2,
                        says="its position in the data would be another")

    def of_wrong_weights_are_refused(self):
        predict = ["predict", "digits.lua", "--output=new.csv"]
        for command, why in [
                (["eval", "digits.lua", "--resume=best"], "folder best; the best save is kept with"),
                (["eval", *self.last, "--weights=runs"], "leave out one of them"),
                ([*predict, "--resume=nowhere"], "strata: resume: there is no file or folder nowhere\n"),
                ([*predict, "--resume=runs/step-00000031"], "--resume=runs/step-00000030")]:
            self.strata.run(*command, code=2, says=why, lacks="rank")
        long = 300 * "n"
        for command, why in [(predict, NO_WEIGHTS), (["eval", "digits.lua"], NO_WEIGHTS),
                             ([*predict, "--weights=" + long], "strata: weights: %s: File name too long\n" % long),
                             ([*predict, "--weights=nowhere"], "strata: weights: there is no file or folder nowhere\n")]:
            shown = self.strata.run(*command, code=2)
            require(shown == why, why, shown)

    def to_a_file_of_no_known_ending_are_refused(self):
        self.strata.run("predict", *self.flags, "--output=new.txt", code=2, says="ends in .npy")


class inputs:
    """Predictions for files without targets."""

    def __init__(self, strata):
        self.strata = strata
        self.flags = ["--weights=runs", "--as_classes"]
        strata.write("train.csv", "a,city,b,kind\n" + "".join(
            "%d,%s,%d,%s\n" % (i, "Rome" if i % 3 else "Oslo", -i, "big" if i > 20 else "small") for i in range(40)))
        strata.write("job.lua", """
            local strata = require "strata"
            local nn = strata.nn
            local table = strata.data.csv{"train.csv", normalise = true}
            return strata.job{layers = {nn.Linear{4, 8}, nn.Tanh{}, nn.Linear{8, 2}}, loss = nn.CrossEntropyLoss{},
              batch = {micro_batches = 2, micro_batch_size = 5}, optimizer = {"adam", lr = 0.1}, steps = 40, device = "cpu",
              data = {train = table, test = table:take(7)}}""")
        strata.write("new.csv", "city,b,a\nRome,-30,30\nOslo,-1,1\nRome,-39,39\n")  # another order, no target
        strata.run("train", "job.lua", "--save.dir=runs")

    def _rows(self, name, *command):
        """The rows behind the head of a CSV file that a prediction writes."""
        self.strata.run("predict", *command, "--output=" + name)
        return [line.split(",") for line in self.strata.read(name).splitlines()[1:]]

    def of_a_table_have_classes_by_name(self):
        self.strata.run("predict", "job.lua", *self.flags, "--input=new.csv", "--output=out.jsonl", "--pipe=2")
        found = [row["class"] for row in program.records(self.strata.path("out.jsonl"))]
        require(found == ["big", "small", "big"], "classes by name", found)

    def have_the_class_names_that_are_given(self):
        rows = self._rows("named.csv", "job.lua", *self.flags, "--input=new.csv", "--class_names=007,1.50")
        require({row[1] for row in rows} == {"007", "1.50"}, "names as they were given", rows)

    def have_the_probabilities_that_a_softmax_gives(self):
        self.strata.write("soft.lua", self.strata.read("job.lua").replace("8, 2}}", "8, 2}, nn.Softmax{dim = 1}}"))
        test, soft = self._rows("test.csv", "job.lua", *self.flags), self._rows("soft.csv", "soft.lua", *self.flags)
        require(len(test) == 7 and all(a[1] == b[1] and abs(float(a[2]) - float(b[2])) < 1e-6
                                       for a, b in zip(test, soft, strict=True)), "equal rows", (test, soft))

    def of_arrays_are_the_same_on_another_grid(self):
        numbers = [(3 * i + k) % 7 / 7 for i in range(9) for k in range(64)]
        header = "{'descr': '<f4', 'fortran_order': False, 'shape': (9, 1, 8, 8), }"
        with open(self.strata.path("x.npy"), "wb") as file:
            file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode()
                       + struct.pack("<576f", *numbers))
        self.strata.run("train", "digits.lua", "--steps=3", "--save.dir=digits", "--device=cpu")
        command = ["digits.lua", "--weights=digits", "--device=cpu", "--threads=1", "--input=x.npy", "--eval.batch=2"]
        one, two = self._rows("one.csv", *command), self._rows("two.csv", *command, "--pipe=2", "--data=2")
        require(len(one) == 9 and one == two, "the same rows of another grid", two)

    def of_no_known_ending_are_refused(self):
        self.strata.run("predict", "digits.lua", "--weights=digits", "--input=new.xlsx", "--output=no.csv", code=2,
                        says="nobody knows how to read")

    def of_texts_have_a_row_for_each_piece(self):
        """Of fewer pieces than training takes; of more than one of which training would hold out."""
        flags = ["llama.lua", "--seq=32", "--dim=16", "--depth=1", "--hidden=32", "--device=cpu"]
        self.strata.run("train", *flags, "--steps=2", "--save.dir=llama")
        for pieces in [1, 20]:
            self.strata.write("%d.txt" % pieces, "a" * (32 * pieces + 1))
            rows = self._rows("text%d.csv" % pieces, *flags, "--weights=llama", "--input=%d.txt" % pieces)
            require(len(rows) == pieces, "a row for each piece", len(rows))

    def that_are_wrong_are_refused(self):
        self.strata.write("labels.lua", """
            local strata = require "strata"
            local function some(i) return strata.F.tensor({i, 1}, {dtype = "float32"}) end
            local data = strata.dataset{10, get = function(i) return some(i), some(i % 2) end}
            return strata.job{layers = {strata.nn.Linear{2, 2}}, loss = strata.nn.BCEWithLogitsLoss{}, device = "cpu",
              steps = 2, batch = {micro_batches = 1, micro_batch_size = 5}, data = {train = data, test = data}}""")
        self.strata.write("wrong.csv", "city,b\nRome,1\n")
        for code, why, command in [
                (2, "each output is a label of its own", ["predict", "labels.lua", *self.flags, "--output=no.csv"]),
                (1, 'no column "a"', ["predict", "job.lua", *self.flags, "--input=wrong.csv", "--output=no.csv"]),
                (2, "there are no targets", ["eval", "job.lua", "--weights=runs", "--data.input=new.csv"])]:
            self.strata.run(*command, code=code, says=why)
        require(not os.path.exists(self.strata.path("no.csv")), "no file", os.listdir(self.strata.folder))


class samples:
    """Texts while a language model trains."""

    def __init__(self, strata):
        self.strata = strata
        self.flags = ["llama.lua", "--seq=32", "--dim=16", "--depth=2", "--hidden=32", "--steps=4", "--device=cpu",
                      "--eval.every=2", "--eval.samples=The license "]
        self.shown = {pipe: self._train(pipe) for pipe in (1, 2)}

    def _train(self, pipe, *more):
        return self.strata.run("train", *self.flags, "--pipe=%d" % pipe, "--log=%d.jsonl" % pipe, "--save.every=2",
                               "--save.dir=runs%d" % pipe, *more)

    def _texts(self, pipe, steps):
        """The texts in the log, which must be behind these steps."""
        records = [record for record in program.records(self.strata.path("%d.jsonl" % pipe)) if "texts" in record]
        require([record["step"] for record in records] == steps, "the records of steps %s" % steps, records)
        return [record["texts"] for record in records]

    def are_shown(self):
        for shown in self.shown.values():
            require(len(re.findall(r"^step [24]/4  sample  The license ", shown, re.M)) == 2, "two texts", shown)

    def are_the_same_on_every_plan(self):
        require(self._texts(1, [1, 3]) == self._texts(2, [1, 3]), "the same texts", self.shown)

    def are_logged_once_where_a_training_goes_on(self):
        self._train(2, "--resume", "--steps=6")
        self._texts(2, [1, 3, 5])

    def are_planned(self):
        self.strata.run("plan", *self.flags, "--pipe=2",
                        says=["or texts", "of keys and values a token on the fullest rank"])

    def that_cannot_be_written_are_refused(self):
        self.strata.run("train", "digits.lua", "--eval.samples=a", code=2,
                        says="eval.samples: expected a language model")
        self.strata.run("train", "llama.lua", "--eval.samples=" + 70 * "a", code=2,
                        says="eval.samples: prompt 1 has 70 bytes")


def of_what_runs(strata):
    """What only a training needs refuses no command that does not train."""
    strata.write("job.lua", """
        local strata = require "strata"
        local nn = strata.nn
        local function some(i) return strata.F.tensor({i % 5, 1, i % 2}, {dtype = "float32"}), strata.F.tensor(i % 2) end
        local data = strata.dataset{16, get = some}
        return strata.job{layers = {nn.Linear{3, 8}, nn.BatchNorm1d{8}, nn.Linear{8, 2}}, loss = nn.CrossEntropyLoss{},
          input = {shape = {3}}, device = "cpu", steps = 2, data = {train = data, test = data},
          optimizer = {"adafactor", lr = 1e-2}, batch = {micro_batches = 2, micro_batch_size = 8}}""")
    strata.run("train", "job.lua", "--save.dir=runs", "--pipe=2")
    last_of_one = ["--micro_batch_size=5", "--micro_batches=2"]
    strata.run("train", "job.lua", *last_of_one, code=2, says="leave a last one of 1 row")
    strata.run("eval", "job.lua", "--weights=runs", "--schedule=1f2b", code=2,
               says='there is no schedule "1f2b"; did you mean "1f1b"?')
    for weights in ("--weights=runs", "--resume=runs"):
        def result(*flags):
            return re.search("^test loss .*$", strata.run("eval", "job.lua", weights, *flags), re.M).group()

        expected = result()
        for flags in (last_of_one, ["--data.train=none", "--eval.every=epoch"], ["--schedule=1f1b", "--stages_per_rank=3"],
                      ["--memory=1KB"], ["--recompute=auto", "--memory=1KB"],
                      ["--data=2", "--zero=1"], ["--schedule=inference"], ["--optimizer=sgd", "--seed=4"],
                      ["--optimizer.beta2_decay=-0.5", "--freeze=type:."]):
            shown = result(*flags)
            require(shown == expected, "the same result with %s" % flags, shown)
            strata.run("predict", "job.lua", weights, *flags, "--output=out.csv")
            os.remove(strata.path("out.csv"))


def killed(strata):
    """kill -9 at random moments of import, export and predict: the whole, nothing, or what goes on."""
    chance = random.Random(5)
    name = "gpt2"
    compute(strata, name, mapped(name), save={"dir": "saves"})
    strata.run("train", "digits.lua", "--steps=2", "--save.dir=runs", "--device=cpu")
    commands = {
        "out.safetensors": ["import", source(name), "--model=" + model(strata, name), "--map=" + name,
                            "--output=%s", *golden(name)["flags"]],
        "out": ["export", "saves", "--map=" + name, "--output=%s", "--shard=2KB"],
        "out.csv": ["predict", "digits.lua", "--weights=runs", "--output=%s", "--eval.batch=1", "--micro_batches=1"],
    }
    for place, arguments in commands.items():
        def line(output):
            return [argument.replace("%s", output) for argument in arguments]

        begin = time.monotonic()
        strata.run(*line("whole-" + place))
        seconds = time.monotonic() - begin
        for kill in range(KILLS):
            output = "%d-%s" % (kill, place)
            job = strata.start(*line(output))
            try:
                job.process.wait(chance.random() * seconds)  # the moment; what must hold does not depend on it
            except subprocess.TimeoutExpired:
                job.kill()
            job.end()
            if not os.path.exists(strata.path(output)):
                strata.run(*line(output))
            require(content(strata.path(output)) == content(strata.path("whole-" + place)), "the whole", output)
            require(not os.path.exists(strata.path(output + ".part")), "no part", os.listdir(strata.folder))


def grey_image(shade):
    """A PNG file of 8 x 8 pixels."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = (b"\0" + bytes([shade] * 8)) * 8
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 8, 8, 8, 0, 0, 0, 0))
            + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def write_image(strata, name, shade):
    path = strata.path(name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(grey_image(shade))


class outputs:
    """Several outputs, and rows of several lengths without what fills them up."""

    def __init__(self, strata):
        self.strata = strata
        self.flags = ["--weights=runs", "--eval.batch=4"]
        strata.write("tags.lua", """
            local strata = require "strata"
            local nn, F = strata.nn, strata.F
            local Tagger = strata.layer{name = "Tagger",
              init = function(self) self.embedding, self.tags = nn.Embedding{9, 4}, nn.Linear{4, 3} end,
              forward = function(self, words, mask)
                local x = self.embedding(words)
                return self.tags(x), (x * mask:unsqueeze(2)):sum(1)
              end}
            local data = strata.dataset{10, ragged = true, get = function(i)
              return F.full({i % 4 + 1}, i % 8 + 1), F.full({i % 4 + 1}, i % 3) end}
            return strata.job{layers = {Tagger{}, function(x, y) return x, y end}, device = "cpu", steps = 2,
              loss = function(output, target) return F.cross_entropy(output[1]:transpose(1, 2), target) end,
              batch = {micro_batches = 1, micro_batch_size = 4}, data = {train = data, test = data, collate = "pad"}}""")
        strata.run("train", "tags.lua", "--save.dir=runs")
        strata.run("predict", "tags.lua", *self.flags, "--output=one.jsonl")

    def are_the_same_of_two_stages(self):
        self.strata.run("predict", "tags.lua", *self.flags, "--output=two.jsonl", "--pipe=2")
        require(self.strata.read("one.jsonl") == self.strata.read("two.jsonl"), "the same rows",
                self.strata.read("two.jsonl"))

    def have_the_rows_of_each_sample_alone(self):
        for i, row in enumerate(program.records(self.strata.path("one.jsonl"))):
            require(row["sample"] == i and len(row["output_0"]) == 3 * (i % 4 + 1), "three numbers a word", row)
            words = zip(row["output_0"], (i % 4 + 1) * row["output_0"][:3])
            require(all(abs(a - b) < 1e-6 for a, b in words) and len(row["output_1"]) == 4, "of this word", row)

    def that_a_file_cannot_hold_are_refused(self):
        self.strata.write("sum.lua", self.strata.read("tags.lua").replace("return x, y end}", "return x, y:sum() end}"))
        for script, output, why in [
                ("tags.lua", "no.safetensors", ["rows of several shapes", ".jsonl takes them"]),
                ("tags.lua", "no.csv", ["gives 2 outputs a sample", "e:predict"]),
                ("sum.lua", "no.jsonl", "float32 () as output_1")]:
            self.strata.run("predict", script, *self.flags, "--output=" + output, code=2, says=why)


class images:
    """Predictions for images are named by their files."""

    def __init__(self, strata):
        self.strata = strata
        self.flags = ["images.lua", "--weights=images"]
        strata.write("images.lua", """
            local strata = require "strata"
            local nn, F = strata.nn, strata.F
            local data = strata.dataset{8, get = function(i) return F.full({1, 8, 8}, i / 8 + 0.1), i % 2 end}
            return strata.job{layers = {nn.Flatten{}, nn.Linear{64, 2}}, loss = nn.CrossEntropyLoss{}, steps = 1,
              batch = {micro_batches = 1, micro_batch_size = 4}, device = "cpu", data = {train = data, test = data}}""")
        for i, name in enumerate(["b.png", "a/1.png", "a/0.png"]):
            write_image(strata, "new/" + name, 80 * i)
        strata.run("train", "images.lua", "--save.dir=images")

    def of_a_folder_are_in_the_order_of_its_files(self):
        self.strata.run("predict", *self.flags, "--input=new", "--output=new.jsonl")
        found = [row["file"] for row in program.records(self.strata.path("new.jsonl"))]
        require(found == ["b.png", "a/0.png", "a/1.png"], "the files", found)

    def may_be_a_single_one(self):
        self.strata.run("predict", *self.flags, "--input=new/a/1.png", "--output=new.csv", "--as_classes")
        lines = self.strata.read("new.csv").splitlines()
        require(lines[0] == "file,sample,class,probability" and lines[1].startswith("1.png,0,"), "its file", lines)

    def of_the_script_have_no_names(self):
        self.strata.run("predict", *self.flags, "--output=test.csv")
        require(self.strata.read("test.csv").startswith("sample,output_0,output_1\n0,"), "data.test as it was", "")


def unfinished(strata):
    """Predictions that a broken file ends are gone on with, though they lie among the files that they are of; not
    once a file in a sub-folder is another one."""
    strata.write("job.lua", """
        local strata = require "strata"
        local nn = strata.nn
        return strata.job{layers = {nn.Flatten{}, nn.Linear{64, 2}}, loss = nn.CrossEntropyLoss{}, steps = 1,
          batch = {micro_batches = 1, micro_batch_size = 1}, device = "cpu",
          data = {train = strata.data.images{shape={1, 8, 8}, classes=2, samples=8},
                  test = strata.data.image_folder{"images", size=8, channels=1}}}""")
    for i in range(12):
        write_image(strata, "images/%s/%d.png" % ("ab"[i // 6], i % 6), 20 * i)
    strata.run("train", "job.lua", "--save.dir=runs")
    with open(strata.path("images/b/5.png"), "wb") as file:
        file.write(grey_image(7)[:60])
    command = ["predict", "job.lua", "--weights=runs", "--output=images/out.csv", "--eval.batch=1"]
    strata.run(*command, code=1, says="images/b/5.png")
    strata.run(*command, code=1, says=re.compile(r"goes on after \d+ samples of images/out.csv.part"))
    os.utime(strata.path("images/b/0.png"), ns=(10**18, 10**18))
    strata.run(*command, code=2, says="images/out.csv.part was left by another run")


def content(path):
    """Of a file, or of all files of a folder."""
    if os.path.isdir(path):
        return {name: content(os.path.join(path, name)) for name in os.listdir(path)}
    with open(path, "rb") as file:
        return file.read()


def loads_there(strata):
    """The libraries' own: models that they save in bf16 and in shards come in, and what five steps make of them is
    loaded there; the logits are theirs. (Recorded numbers hold the five steps to theirs: check().)"""
    try:
        import safetensors.torch
        import torch
        sys.path.insert(0, os.path.join(DATA, "weights"))
        import make_weights
    except ImportError as error:
        return program.skipped("no transformers and torchvision (%s)" % error)

    def require_same(name, model, ours, what):
        x = torch.tensor(golden(name)["x"]).view(golden(name)["x_shape"])
        with torch.no_grad():
            theirs = model.float().eval()(x)
        theirs = getattr(theirs, "logits", theirs).flatten()
        worst = ((theirs - torch.tensor(ours["logits"])).abs() / theirs.abs().clamp(min=1)).max().item()
        require(worst <= 1e-5, "%s: the same logits of %s" % (name, what), worst)

    for name in ["gpt2", "llama", "bert", "vit", "resnet", "convnext"]:
        torch.manual_seed(7)
        model = getattr(make_weights, name + "_model")().bfloat16()
        place = strata.path("in-" + name)
        if hasattr(model, "save_pretrained"):
            model.save_pretrained(place, max_shard_size="8KB")
            require(os.path.exists(place + "/model.safetensors.index.json"), "shards", os.listdir(place))
            model = type(model).from_pretrained(place)
        else:
            torch.save(model.state_dict(), place)
        weights = mapped(name, place)
        require_same(name, model, compute(strata, name, weights), "what comes in")
        saves, out = "saves-" + name, "out-" + name
        compute(strata, name, weights, save={"dir": saves})
        strata.run("export", saves, "--map=" + name, "--output=" + out, "--shard=8KB")
        tensors = {}
        for file in os.listdir(strata.path(out)):
            if file.endswith(".safetensors"):
                tensors.update(safetensors.torch.load_file(os.path.join(strata.path(out), file)))
        missing = model.float().load_state_dict(tensors, strict=False)
        require(not missing.unexpected_keys and set(missing.missing_keys) <= {"lm_head.weight"} | {
            key for key in missing.missing_keys if key.endswith("num_batches_tracked")}, "all tensors", missing)
        if name == "gpt2":  # it has a config.json too
            model = make_weights.transformers.GPT2LMHeadModel.from_pretrained(strata.path(out))
        require_same(name, model, compute(strata, name, saves), "what goes out")


if __name__ == "__main__":
    program.main(globals())
