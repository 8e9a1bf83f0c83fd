#!/usr/bin/env python3
"""A GPT-2 of 1.56 billion parameters (random bf16, in shards) is planned, imported, trained for a step and saved on two
ranks, each within its half of the memory. By hand: it takes 9 GB of the disk and 10 GB of memory.

usage: large.py STRATA MODELS of_1_5_billion
"""

import json
import os
import re
import struct
import subprocess

import program
from program import require

DIM, DEPTH, HEADS, VOCABULARY, LENGTH = 1600, 48, 25, 50257, 1024
SIZES = ["--dim=%d" % DIM, "--depth=%d" % DEPTH, "--heads=%d" % HEADS, "--vocab=%d" % VOCABULARY,
         "--seq=%d" % LENGTH, "--dropout=0"]
HALF = ["--precision=bf16", "--precision.params=bf16", "--optimizer=sgd", "--device=cpu", "--micro_batches=2",
        "--micro_batch_size=1", "--partition=parameters", "--schedule=1f1b"]
GIB = 1 << 30
LIBTORCH = 1.5  # GiB: its code, and memory that its kernels keep for themselves


def tensors():
    """transformers' names of GPT-2, and their shapes."""
    yield "wte.weight", [VOCABULARY, DIM]
    yield "wpe.weight", [LENGTH, DIM]
    for i in range(DEPTH):
        block = "h.%d." % i
        for name, shape in [("ln_1.weight", [DIM]), ("ln_1.bias", [DIM]), ("attn.c_attn.weight", [DIM, 3 * DIM]),
                            ("attn.c_attn.bias", [3 * DIM]), ("attn.c_proj.weight", [DIM, DIM]),
                            ("attn.c_proj.bias", [DIM]), ("ln_2.weight", [DIM]), ("ln_2.bias", [DIM]),
                            ("mlp.c_fc.weight", [DIM, 4 * DIM]), ("mlp.c_fc.bias", [4 * DIM]),
                            ("mlp.c_proj.weight", [4 * DIM, DIM]), ("mlp.c_proj.bias", [DIM])]:
            yield block + name, shape
    yield "ln_f.weight", [DIM]
    yield "ln_f.bias", [DIM]


def count(shape):
    return shape[0] * (shape[1] if len(shape) > 1 else 1)


def write_shards(folder, most=GIB):
    """Random numbers below 1/32 of the same few MB again and again; the parameters in all."""
    os.mkdir(folder)
    noise = bytearray(os.urandom(1 << 22))
    noise[1::2] = bytes((b & 0x81) | 0x3c for b in noise[1::2])  # signs and exponents of small bf16
    shards = [[]]
    for name, shape in tensors():
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


def of_1_5_billion(strata):
    parameters = write_shards(strata.path("gpt2-xl"))
    require(parameters > 1.5e9, "1.5 billion parameters", parameters)
    grid = ["gpt2.lua", *SIZES, *HALF, "--pipe=2"]
    planned = strata.run("plan", *grid)
    rows = [float(all) for all in re.findall(r"^ *[01] .* ([\d.]+) GiB *$", planned, re.M)]
    require(len(rows) == 2, "the memory of two ranks", planned)
    alone = strata.run("plan", *grid, "--pipe=1")
    whole = float(re.search(r"^ *0 .* ([\d.]+) GiB *$", alone, re.M)[1])
    print("planned: %.2f and %.2f GiB, of %.2f on one rank" % (*rows, whole))

    imported = strata.start("import", "gpt2-xl", "--model=" + os.path.join(strata.models, "gpt2.lua"), "--map=gpt2",
                            "-o", "in.safetensors", *SIZES, *HALF)
    most = peaks(imported)
    out = imported.end()
    require(out[0] == 0, "an import", out)
    print("import: " + out[1].strip().splitlines()[-1])
    print("import: at most %.2f GiB in a process" % (max(most.values()) / GIB))
    require(max(most.values()) < GIB, "an import within 1 GiB", most)
    for name in os.listdir(strata.path("gpt2-xl")):
        os.unlink(strata.path("gpt2-xl/" + name))

    training = strata.start("train", *grid, "--weights=in.safetensors", "--steps=1", "--save.dir=runs", "--threads=1")
    most = peaks(training)
    code, out, errors = training.end()
    require(code == 0 and "saved step 1" in out, "a save", out + errors)
    print("\n".join(line for line in out.splitlines() if line.startswith(("step", "saved"))))
    ranks = sorted(bytes / GIB for bytes in most.values())[-2:]
    print("train: %.2f and %.2f GiB at most on the two ranks, LibTorch included" % tuple(ranks))
    copy = parameters / GIB  # the half of 2 bytes each
    require(ranks[1] < 0.6 * whole + copy + LIBTORCH, "about half, the copy that is saved, and LibTorch", ranks)


if __name__ == "__main__":
    program.main(globals())
