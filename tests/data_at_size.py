#!/usr/bin/env python3
"""Data files of the sizes that users have: how long they take to open, in processor seconds, and the memory of all
processes. A file is read once a machine, with lines that say how far it is; time for data is not the script's.

usage: data_at_size.py STRATA MODELS TEST...

The files repeat one block of rows or texts; arrays and tokens are sparse. They take up to 4 GB of the disk.
"""

import json
import os
import random
import re
import resource
import struct
import threading
import time

import program
from program import require

MB, MIB = 10**6, 1 << 20
PREPARED = r"\nstrata: reading \S+, \d+ %\n"
TARGET = "target"
WORDS = "the of and to in is that it was for on are as with his they at be this from have or by one had not".split()

JOB = """
local strata = require "strata"
local nn = strata.nn
return strata.job {
  layers = { %s }, loss = nn.CrossEntropyLoss{}, optimizer = {"sgd", lr = 0.01}, steps = 5,
  batch = { micro_batches = 2, micro_batch_size = 32 }, data = strata.data.%s,
  partition = "uniform", device = "cpu", threads = 1,
}
"""
OF_ROWS = "nn.Linear{25, 16}, nn.Linear{16, 2}"
OF_BYTES = "nn.Embedding{256, 16}, nn.Linear{16, 256}"
OF_VECTORS = "nn.Linear{1024, 16}, nn.Linear{16, 4}"


def repeat(path, head, block, least):
    """A file with a header and so many copies of the block that they have `least` bytes; their number."""
    copies = -(-least // len(block))
    with open(path, "wb") as file:
        file.write(head)
        for _ in range(copies):
            file.write(block)
    return copies


def write_table(strata, least):
    """21 columns: 18 of numbers, 2 of words, the target. The number of rows."""
    draw = random.Random(1)
    numbers = lambda: ["%.3f" % draw.gauss(0, 10) if i % 2 else str(draw.randrange(1000)) for i in range(18)]
    words = lambda: [draw.choice(("red", "green", "blue", "black")), draw.choice("abc"), draw.choice(("yes", "no"))]
    rows = 20_000
    block = "".join(",".join(numbers() + words()) + "\n" for _ in range(rows)).encode()
    names = ["x%d" % i for i in range(18)] + ["colour", "kind", TARGET]
    return rows * repeat(strata.path("rows.csv"), (",".join(names) + "\n").encode(), block, least)


def text_of(draw, words):
    return " ".join(draw.choice(WORDS) for _ in range(words))


def write_lines(strata, least):
    draw = random.Random(2)
    line = lambda: json.dumps({"text": text_of(draw, draw.randrange(20, 150)), "label": draw.choice(("pos", "neg"))})
    repeat(strata.path("texts.jsonl"), b"", "".join(line() + "\n" for _ in range(10_000)).encode(), least)


def write_text(strata, least):
    repeat(strata.path("text.txt"), b"", (text_of(random.Random(3), 100_000) + "\n").encode(), least)


def write_arrays(strata, least):
    """Zeros that take no room on the disk: vectors of 1,024 floats, and their labels."""
    samples = least // 4096
    for name, dtype, shape in [("x.npy", "<f4", "(%d, 1024)" % samples), ("y.npy", "<i8", "(%d,)" % samples)]:
        header = "{'descr': '%s', 'fortran_order': False, 'shape': %s, }" % (dtype, shape)
        header += " " * (-(len(header) + 11) % 64) + "\n"
        with open(strata.path(name), "wb") as file:
            file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode())
            file.truncate(file.tell() + samples * (4096 if name == "x.npy" else 8))


def memory_of(pids):
    """The memory of processes together, shared pages divided among them, and that of files left out of it."""
    resident = anonymous = 0
    for pid in pids:
        try:
            with open("/proc/%d/smaps_rollup" % pid) as file:
                sizes = dict(re.findall(r"^(\w+): +(\d+) kB", file.read(), re.M))
        except OSError:
            continue
        resident += int(sizes.get("Pss", 0)) * 1024
        anonymous += int(sizes.get("Pss_Anon", 0)) * 1024
    return resident, anonymous


class Measured:
    """A run of the program: its output, processor seconds, and the peaks of memory of all its processes."""

    def __init__(self, strata, *arguments):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        begin = time.monotonic()
        self.resident = self.anonymous = 0
        job = strata.start(*arguments, environment={"STRATA_CACHE": strata.path("cache")})
        thread = threading.Thread(target=self.watch, args=(job,))
        thread.start()
        code, out, errors = job.end()
        thread.join()
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        self.wall = time.monotonic() - begin
        self.out = out + errors
        require(code == 0, "exit code 0", self.out)

    def watch(self, job):
        while job.process.poll() is None:
            pids = [pid for group in job.pids().values() for pid in group] + [job.process.pid]
            resident, anonymous = memory_of(pids)
            self.resident, self.anonymous = max(self.resident, resident), max(self.anonymous, anonymous)
            time.sleep(0.2)

    def show(self, what):
        print("%-34s %6.1f s of a processor, %6.1f s, %6d MiB of memory, %6d without files" % (
            what, self.seconds, self.wall, self.resident // MIB, self.anonymous // MIB), flush=True)


def open_often(strata, name, source, layers, bytes_, most_anonymous=None):
    """Plans twice and trains on two ranks. Only the first reads the file."""
    strata.write(name + ".lua", JOB % (layers, source))
    runs = []
    for what in ("plan", "plan", "train"):
        run = Measured(strata, what, name + ".lua", *(["--pipe=2"] if what == "train" else []))
        run.show("%s %s of %d MB" % (what, name, bytes_ // MB))
        require("takes longer than" not in run.out, "no limit of time for data", run.out)
        require(most_anonymous is None or run.anonymous < most_anonymous, "at most %s bytes" % most_anonymous,
                "%s has %d" % (name, run.anonymous))
        runs.append(run)
    return runs


def size(strata, name):
    return os.path.getsize(strata.path(name))


def copies(strata):
    """The prepared copies, with the time of their last change and the inode: a new one would have another."""
    folder = strata.path("cache/prepared")
    return {name: os.stat(os.path.join(folder, name)).st_ino for name in os.listdir(folder)}


def small(strata):
    """30 MB: a table and texts are prepared once, within a limit of time far below what reading them takes."""
    os.mkdir(strata.path("cache"))
    write_table(strata, 30 * MB)
    write_lines(strata, 30 * MB)
    for name, source, layers in [("table", 'csv{"rows.csv", normalise=true}', OF_ROWS),
                                 ("texts", 'jsonl{"texts.jsonl", length=32}', OF_BYTES)]:
        strata.write(name + ".lua", JOB % (layers, source))
        environment = {"STRATA_CACHE": strata.path("cache")}
        strata.run("plan", name + ".lua", "--script_timeout=0.1", environment=environment)
        kept = copies(strata)
        strata.run("train", name + ".lua", "--pipe=2", environment=environment)
        require(copies(strata) == kept, "the copies of the plan, and no others", (kept, copies(strata)))
    require(len(kept) == 2 and not any("." in copy for copy in kept), "two copies, no other file", kept)


def at_size(strata):
    os.mkdir(strata.path("cache"))
    rows = write_table(strata, 559 * MB)
    bytes_ = size(strata, "rows.csv")
    print("%d rows" % rows)
    first, again, _ = open_often(strata, "table", 'csv{"rows.csv", normalise=true}', OF_ROWS, bytes_, 1500 * MIB)
    require(first.seconds < bytes_ / MB / 100 + 1, "100 MB a second", first.seconds)
    require(re.search(PREPARED, "\n" + first.out), "lines that say how far it is", first.out)
    require(again.seconds < 1, "the copy", again.seconds)
    os.remove(strata.path("rows.csv"))

    write_text(strata, 200 * MB)
    open_often(strata, "text", 'text{"text.txt", length=128}', OF_BYTES, size(strata, "text.txt"))
    os.remove(strata.path("text.txt"))

    write_arrays(strata, 4000 * MB)
    open_often(strata, "arrays", 'npy{"x.npy", "y.npy"}', OF_VECTORS, size(strata, "x.npy"))

    with open(strata.path("tokens.bin"), "wb") as file:
        file.truncate(10**9 + 1)
    open_often(strata, "tokens", 'token_file{"tokens.bin", dtype="uint8", length=1, vocabulary=256}', OF_BYTES,
               size(strata, "tokens.bin"), 1500 * MIB)

    write_lines(strata, 2000 * MB)
    bytes_ = size(strata, "texts.jsonl")
    first, again, _ = open_often(strata, "texts", 'jsonl{"texts.jsonl", length=128}', OF_BYTES, bytes_)
    require(first.seconds < 30, "30 s", first.seconds)
    require(again.seconds < 1, "the copy", again.seconds)


if __name__ == "__main__":
    program.main({"small": small, "at_size": at_size})
