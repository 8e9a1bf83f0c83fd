#!/usr/bin/env python3
"""Trainings on Parquet files: killed at random, on several grids, with chats, and on files of many row groups.

usage: records.py STRATA MODELS TEST...
"""

import json
import os
import random
import resource
import signal
import time

import pyarrow
import pyarrow.parquet

import program
from program import require

# Samples are random, so the bits of a step's loss tell which samples it had.
JOB = """
local strata = require "strata"
local nn = strata.nn
return strata.job {
  layers = { nn.Linear{8, 16}, nn.Tanh{}, nn.Linear{16, 3} }, loss = nn.CrossEntropyLoss{},
  optimizer = { "adamw", lr = 1e-3 }, batch = { micro_batches = 4, micro_batch_size = 4 },
  data = strata.data.parquet{"rows-*.parquet", columns={"x"}, target="y"%s},
  parallel = { pipe = 2 }, steps = 40, device = "cpu", threads = 1, partition = "uniform",
}
"""

CHATS = """
local strata = require "strata"
local nn = strata.nn
local function template(messages)
  local parts = {}
  for i, m in ipairs(messages) do parts[i] = {text = m.content .. "\\n", train = m.role == "assistant"} end
  return parts
end
return strata.job {
  layers = {
    strata.documents{}, nn.Embedding{256, 16},
    nn.TransformerEncoderLayer{16, 2, dim_feedforward=32, batch_first=true, causal=true}, nn.Linear{16, 256},
  },
  loss = nn.CrossEntropyLoss{}, optimizer = { "adamw", lr = 1e-2 }, parallel = { pipe = 2 },
  batch = { micro_batches = 2, micro_batch_size = 2 }, steps = 12, device = "cpu", threads = 1,
  data = strata.data.chat{"%s", template}:pack{64},
}
"""


def write_rows(strata, rows=600, group=25):
    draw = random.Random(1)
    for name in ("rows-0.parquet", "rows-1.parquet"):
        table = pyarrow.table({"x": [[draw.gauss(0, 1) for _ in range(8)] for _ in range(rows)],
                               "y": [draw.choice(("a", "b", "c")) for _ in range(rows)]})
        pyarrow.parquet.write_table(table, strata.path(name), row_group_size=group)


def losses_of(strata, log):
    """(step, loss) of each step in a log that may not be there, and whose last line may be cut off."""
    if not os.path.exists(strata.path(log)):
        return []
    whole = [line for line in strata.read(log).splitlines(keepends=True) if line.endswith("\n")]
    return [(step["step"], step["loss"]) for step in map(json.loads, whole) if "grad_norm" in step]


def train(strata, log, *flags):
    """The loss of each step, exactly."""
    strata.run("train", "job.lua", "--log=" + log, *flags)
    return dict(losses_of(strata, log))


def kills(strata, count):
    """Killed at random moments: each step of each run has the loss, so the samples, of the run that nobody killed."""
    write_rows(strata)
    for window in ("", ", window=100"):
        folder = "killed%d" % len(window)
        strata.write("job.lua", JOB % window)
        chance = random.Random(count)
        flags = ["--save.dir=" + folder, "--save.every=1", "--resume", "--steps=1000000", "--print_every=1"]
        seen = []
        for kill in range(count // 2):
            log = "%s-%d.jsonl" % (folder, kill)
            job = strata.start("train", "job.lua", "--transport=" + chance.choice(["gloo", "threads"]),
                               "--log=" + log, *flags)
            for _ in range(chance.randrange(2, 40)):  # so many lines: some before the first step
                job.process.stdout.readline()
            victims = [job.process.pid] + [pid for pids in job.pids().values() for pid in pids]
            time.sleep(chance.random() * 0.02)  # the moment; what must hold does not depend on it
            os.kill(chance.choice(victims), signal.SIGKILL)
            require(job.end()[0] not in (0, 2), "a death", log)
            seen += losses_of(strata, log)
        last = max(step for step, _ in seen)
        whole = train(strata, folder + "-whole.jsonl", "--steps=%d" % (last + 1))
        wrong = [(step, loss, whole[step]) for step, loss in seen if whole[step] != loss]
        require(not wrong, "the losses of the uninterrupted run", wrong[:5])
        require(last > 75 or count < 20, "more than an epoch", last)
        print("%d kills%s: %d steps seen, up to step %d" % (count // 2, window, len(seen), last))


def grids(strata):
    """Every grid sees the same samples in a step, with windows too."""
    write_rows(strata, 100)
    orders = []
    for window in ("", ", window=40"):
        strata.write("job.lua", JOB % window)
        found = []
        for pipe, data, transport in [(1, 1, "threads"), (2, 2, "gloo"), (1, 4, "threads")]:
            log = "%d-%d-%d.jsonl" % (len(window), pipe, data)
            found.append(train(strata, log, "--pipe=%d" % pipe, "--data=%d" % data,
                               "--micro_batches=%d" % (4 // data), "--transport=" + transport))
        # Replicas add in another order, which rounds otherwise; losses of other samples differ by hundredths.
        apart = max(abs(other[step] - found[0][step]) for other in found for step in range(40))
        require(apart < 1e-6, "the losses of one process", (apart, found))
        orders.append(found[0])
    require(orders[0] != orders[1], "another order with a window", orders)


def chats(strata):
    """Packed chats of Parquet train as those of JSON lines."""
    chat = [[{"role": "user", "content": "%d + %d" % (i, k)}, {"role": "assistant", "content": str(i + k)}]
            for i in range(8) for k in range(8)]
    pyarrow.parquet.write_table(pyarrow.table({"messages": chat}), strata.path("chats.parquet"), row_group_size=10)
    strata.write("chats.jsonl", "".join(json.dumps({"messages": messages}) + "\n" for messages in chat))
    found = []
    for name in ("chats.jsonl", "chats.parquet"):
        strata.write("job.lua", CHATS % name)
        found.append(train(strata, name + ".log"))
    require(found[0] == found[1] and found[0][11] < found[0][0], "the same losses, and lower ones", found)


def large(strata):
    """Some 850 MB of rows in 1,000 row groups: the memory of a training, and the time to open it."""
    rows, groups = 3000, 1000
    draw = random.Random(2)
    table = pyarrow.table({"x": [[draw.gauss(0, 1) for _ in range(8)] for _ in range(rows)],
                           "y": [draw.choice(("a", "b", "c")) for _ in range(rows)],
                           "other": [draw.randbytes(200) for _ in range(rows)]})
    for name in ("rows-0.parquet", "rows-1.parquet"):
        with pyarrow.parquet.ParquetWriter(strata.path(name), table.schema) as writer:
            for _ in range(groups // 2):
                writer.write_table(table)
    bytes_ = sum(os.path.getsize(strata.path(name)) for name in ("rows-0.parquet", "rows-1.parquet"))
    strata.write("job.lua", JOB % "")
    cache = {"STRATA_CACHE": strata.own_cache()}
    for what in ("first", "again"):
        start = time.monotonic()
        job = strata.start("train", "job.lua", "--pipe=1", "--steps=5", environment=cache)
        code, out, errors = job.end()
        require(code == 0, "a training", out + errors)
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        print("%s: %.0f MB, %.1f s, at most %.0f MiB in a process"
              % (what, bytes_ / 1e6, time.monotonic() - start, peak))
        require(peak < bytes_ / 1e6, "memory that does not grow with the file", peak)


if __name__ == "__main__":
    program.main(globals())
