#!/usr/bin/env python3
"""A large GPT-2 (random bf16, in shards) is planned, imported, trained for a step and saved on two ranks, each within
its half of the memory. Of 1.56 billion parameters by hand: it takes 9 GB of the disk and 14 GB of memory.

usage: large.py STRATA MODELS TEST...
"""

import json
import os
import re
import shutil
import struct
import subprocess

import program
from program import require

HALF = ["--precision=bf16", "--precision.params=bf16", "--optimizer=sgd", "--device=cpu", "--micro_batches=2",
        "--micro_batch_size=1", "--partition=parameters", "--schedule=1f1b"]
GIB = 1 << 30
MOST_TENSORS = 1.1  # times what is planned
MOST_RESIDENT = 1.2  # times that: LibTorch's products keep memory of their own


class Gpt2:
    def __init__(self, dim, depth, heads, vocabulary, length):
        self.dim, self.depth, self.vocabulary, self.length = dim, depth, vocabulary, length
        self.flags = ["--dim=%d" % dim, "--depth=%d" % depth, "--heads=%d" % heads, "--vocab=%d" % vocabulary,
                      "--seq=%d" % length, "--dropout=0", *HALF]

    def tensors(self):
        """transformers' names of GPT-2, and their shapes."""
        dim = self.dim
        yield "wte.weight", [self.vocabulary, dim]
        yield "wpe.weight", [self.length, dim]
        for i in range(self.depth):
            block = "h.%d." % i
            for name, shape in [("ln_1.weight", [dim]), ("ln_1.bias", [dim]), ("attn.c_attn.weight", [dim, 3 * dim]),
                                ("attn.c_attn.bias", [3 * dim]), ("attn.c_proj.weight", [dim, dim]),
                                ("attn.c_proj.bias", [dim]), ("ln_2.weight", [dim]), ("ln_2.bias", [dim]),
                                ("mlp.c_fc.weight", [dim, 4 * dim]), ("mlp.c_fc.bias", [4 * dim]),
                                ("mlp.c_proj.weight", [4 * dim, dim]), ("mlp.c_proj.bias", [dim])]:
                yield block + name, shape
        yield "ln_f.weight", [dim]
        yield "ln_f.bias", [dim]


def count(shape):
    return shape[0] * (shape[1] if len(shape) > 1 else 1)


def write_shards(model, folder, most):
    """Random numbers below 1/32 of the same few MB again and again; the parameters in all."""
    os.mkdir(folder)
    noise = bytearray(os.urandom(1 << 22))
    noise[1::2] = bytes((b & 0x81) | 0x3c for b in noise[1::2])  # signs and exponents of small bf16
    shards = [[]]
    for name, shape in model.tensors():
        if sum(2 * count(s) for _, s in shards[-1]) + 2 * count(shape) > most and shards[-1]:
            shards.append([])
        shards[-1].append((name, shape))
    places, total = {}, 0
    for number, shard in enumerate(shards):
        file_name = "model-%05d-of-%05d.safetensors" % (number + 1, len(shards))
        header, end = {}, 0
        for name, shape in shard:
            header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [end, end + 2 * count(shape)]}
            end += 2 * count(shape)
            places[name] = file_name
        text = json.dumps(header).encode()
        with open(os.path.join(folder, file_name), "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            for left in range(end, 0, -len(noise)):
                file.write(noise[:left])
        total += end
    with open(os.path.join(folder, "model.safetensors.index.json"), "w") as file:
        json.dump({"metadata": {"total_size": total}, "weight_map": places}, file)
    return total // 2


def peaks(job):
    """The most memory of each process of the job while it runs."""
    most = {}
    while job.process.poll() is None:
        for pid in [job.process.pid, *(pid for pids in job.pids().values() for pid in pids)]:
            try:
                with open("/proc/%d/status" % pid) as file:
                    shown = re.search(r"VmHWM:\s+(\d+) kB", file.read())
            except OSError:
                continue
            if shown:
                most[pid] = max(most.get(pid, 0), 1024 * int(shown[1]))
        try:
            job.process.wait(0.1)
        except subprocess.TimeoutExpired:
            pass
    return most


def planned(strata, model, pipe):
    """Bytes of tensors on each rank."""
    return [rank["total"] for rank in strata.plan("gpt2.lua", *model.flags, "--pipe=%d" % pipe)["memory"]]


def trained(strata, model, folder, *more):
    """A step and its save on two ranks: what the engine counts of tensors on the larger one, and what each
    process takes at most."""
    training = strata.start("train", "gpt2.lua", *model.flags, "--pipe=2", "--steps=1", "--threads=1",
                            "--save.dir=" + folder, "--log=%s.jsonl" % folder, *more)
    most = peaks(training)
    code, out, errors = training.end()
    require(code == 0 and "saved step 1" in out, "a save", out + errors)
    print("\n".join(line for line in out.splitlines() if line.startswith(("step", "saved"))))
    return program.steps(strata.path(folder + ".jsonl"))[0]["peak_memory"], sorted(most.values())[-2:]


def import_and_train(strata, model, shard):
    """Bytes of the ranks: planned, and taken beside LibTorch."""
    parameters = write_shards(model, strata.path("weights"), shard)
    ranks, whole = planned(strata, model, 2), planned(strata, model, 1)[0]
    print("%d parameters, planned: %.3f and %.3f GiB, of %.3f on one rank" % (
        parameters, ranks[0] / GIB, ranks[1] / GIB, whole / GIB))

    imported = strata.start("import", "weights", "--model=" + os.path.join(strata.models, "gpt2.lua"), "--map=gpt2",
                            "-o", "in.safetensors", *model.flags)
    most = peaks(imported)
    code, out, errors = imported.end()
    require(code == 0, "an import", out + errors)
    print("import: %s\nimport: at most %.3f GiB in a process" % (
        out.strip().splitlines()[-1], max(most.values()) / GIB))
    require(max(most.values()) < GIB, "an import within 1 GiB", most)
    shutil.rmtree(strata.path("weights"))

    _, libtorch = trained(strata, Gpt2(32, 2, 2, 64, 16), "few")
    tensors, resident = trained(strata, model, "runs", "--weights=in.safetensors")
    beside = [taken - base for taken, base in zip(resident, libtorch)]
    print("train: %.3f GiB of tensors on the larger rank; %.3f and %.3f GiB at most in a process, %.3f without "
          "parameters" % (tensors / GIB, resident[0] / GIB, resident[1] / GIB, libtorch[1] / GIB))
    require(tensors < MOST_TENSORS * max(ranks), "tensors as planned", [tensors, ranks])
    return parameters, sorted(ranks), beside


def of_1_5_billion(strata):
    parameters, ranks, beside = import_and_train(strata, Gpt2(1600, 48, 25, 50257, 1024), shard=GIB)
    require(parameters > 1.5e9, "1.5 billion parameters", parameters)
    for plan, taken in zip(ranks, beside):
        require(taken < MOST_RESIDENT * plan, "memory as planned, the save's too", [ranks, beside])


def of_30_million(strata):
    """The same in seconds. Resident memory says nothing here: LibTorch takes more than the model."""
    import_and_train(strata, Gpt2(512, 8, 8, 10007, 256), shard=GIB >> 6)


if __name__ == "__main__":
    program.main(globals())
