#!/usr/bin/env python3
"""strata.comm.init in scripts that `strata run` runs, in several processes.

usage: comm.py STRATA MODELS TEST...
"""

import json
import os

import program
from program import require

SCRIPT = """
local strata = require "strata"
local comm, F = strata.comm, strata.F
local options = { timeout = 60 }
for _, word in ipairs(arg) do
  local name, value = word:match("^([%w_]+)=(.*)$")
  options[name] = tonumber(value) or value
end
local place = comm.init(options)
local again = comm.init{rank = 7, world_size = 9, init_method = "tcp://127.0.0.1:1"}
local mine = F.full({2}, place.rank + 1, {dtype = "float32"})
local max = comm.all_reduce(mine, {op = "max", async = true})
print(strata.json.encode{
  place = place, again = again, sum = comm.all_reduce(mine):tolist(),
  all = comm.all_gather(mine):tolist(), max = max:wait(60):tolist(),
  last = comm.broadcast(mine, {root = comm.size{} - 1}):tolist(),
})
comm.barrier{}
"""


def without_starter():
    """The environment's variables that could place a process, emptied."""
    return {name: "" for name in ["RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
                                  "MASTER_ADDR", "MASTER_PORT"] if name in os.environ}


def run(strata, words, environments=None):
    """(exit code, standard output, standard error) of a process for each list of words."""
    strata.write("meet.lua", SCRIPT)
    environments = environments or [{}] * len(words)
    jobs = [strata.start("run", "meet.lua", *line, environment=dict(without_starter(), **one))
            for line, one in zip(words, environments)]
    return [job.end() for job in jobs]


def expect_meeting(done, ranks, backend="gloo"):
    """Every process saw all the others."""
    values = [float(rank + 1) for rank in range(ranks)]
    for rank, (code, out, errors) in enumerate(done):
        require(code == 0, "exit code 0", (code, out, errors))
        place = {"rank": rank, "world_size": ranks, "backend": backend}
        require(json.loads(out) == {
            "place": place, "again": place, "sum": [sum(values)] * 2,
            "all": [value for value in values for _ in range(2)], "max": [max(values)] * 2,
            "last": [values[-1]] * 2}, "what %d ranks say together" % ranks, out)


def expect_errors(done, *texts):
    for code, out, errors in done:
        require(code != 0, "a failure", (code, out, errors))
    shown = "\n".join(errors for _, _, errors in done)
    for text in texts:
        require(text in shown, text, shown)


def env(strata):
    environments = program.torchrun_ranks(2)
    expect_meeting(run(strata, [[], ["init_method=env://"]], environments), 2)
    del environments[1]["MASTER_PORT"], environments[1]["WORLD_SIZE"]
    expect_errors(run(strata, [[]], environments[1:]), "WORLD_SIZE")


def tcp(strata):
    method = "init_method=tcp://127.0.0.1:" + program.free_port()
    words = [[method, "rank=%d" % rank, "world_size=3", "backend=gloo"] for rank in range(3)]
    expect_meeting(run(strata, words), 3)
    # What contradicts itself ends at once on all that have come.
    method = "init_method=tcp://127.0.0.1:" + program.free_port()
    words = [[method, "rank=%d" % rank, "world_size=3"] for rank in [0, 1, 1]]
    expect_errors(run(strata, words), "rank 1 is there twice")
    expect_errors(run(strata, [[method, "rank=3", "world_size=3"]]),
                  "RANK = 3 is beyond the last of WORLD_SIZE = 3", "= 3 (from the call)")
    expect_errors(run(strata, [[method, "rank=0"]]), "WORLD_SIZE is missing")


def file(strata):
    method = "init_method=file://" + strata.path("store")
    words = [[method, "rank=%d" % rank, "world_size=2"] for rank in range(2)]
    expect_meeting(run(strata, words), 2)


MESSAGES = """
local strata = require "strata"
local comm, F = strata.comm, strata.F
local place = comm.init{rank = tonumber(arg[1]), world_size = 3, init_method = arg[2], timeout = 60}
local me, next, before = place.rank, (place.rank + 1) % 3, (place.rank + 2) % 3
local function mine(i) return F.full({2, 3}, 10 * me + i, {dtype = "float32"}) end
-- Round the ring: all send before anybody receives.
local big = F.full({1 << 0, 3000000}, me, {dtype = "float32"})
comm.send(big, {to = next})
local sent = comm.send(mine(1), {to = next, async = true})
local there = comm.recv(big, {from = before})
local handle = comm.recv(mine(0), {from = before, async = true})
local small = handle:wait(60)
sent:wait(60)
-- Messages take their turn among collectives.
local sum = comm.all_reduce(mine(0))
if me == 0 then comm.send(F.tensor{7, 8}, {to = 2}) end
local word = me == 2 and comm.recv(F.tensor{0, 0}, {from = 0}):tolist() or {}
print(strata.json.encode{
  big = {there[0][0]:item(), there[0][2999999]:item()}, small = small:tolist(),
  sum = sum[0][0]:item(), word = word })
comm.barrier{}
if arg[3] == "other" then
  if me == 0 then comm.send(mine(0), {to = 1}) end
  if me == 1 then comm.recv(F.tensor{0, 0}, {from = 0}) end
  comm.barrier{}
elseif arg[3] then
  local ok, why = pcall(load(arg[3]), comm, mine(0))
  print(why)
end
""".replace("1 << 0", "1")


def messages(strata):
    """send and recv: rings, handles, the turn among collectives, and what is refused."""
    def job(*more):
        strata.write("messages.lua", MESSAGES)
        method = "tcp://127.0.0.1:" + program.free_port()
        jobs = [strata.start("run", "messages.lua", str(rank), method, *more,
                             environment=without_starter()) for rank in range(3)]
        return [one.end() for one in jobs]

    for rank, (code, out, errors) in enumerate(job()):
        require(code == 0, "exit code 0", (code, out, errors))
        before = (rank + 2) % 3
        require(json.loads(out) == {
            "big": [float(before)] * 2, "small": [[10.0 * before + 1] * 3] * 2, "sum": 30.0,
            "word": [7, 8] if rank == 2 else []}, "rank %d's messages" % rank, out)
    expect_errors(job("other"), "this one expects send", "int64", "rank 0 send", "float32")
    for call, words in [
            ("comm.send(x, {to = 3})", ["to is 3, the axis has 3 ranks"]),
            ("comm.recv(x, {from = comm.rank{}})", ["that is this rank itself"]),
            ("comm.send(x, {from = 1})", ["from", "to"]),
            ("comm.recv(x)", ["from"]),
            ("comm.send(x, {to = 1, axis = 'data'})", ["to is 1, the axis has 1 rank"])]:
        done = job("local comm, x = ...; " + call)
        require(all(code == 0 for code, _, _ in done), "exit code 0", done)
        for word in words:
            require(all(word in out for _, out, _ in done), word, done)


def backends(strata):
    words = ["init_method=tcp://127.0.0.1:1", "rank=0", "world_size=2"]
    expect_errors(run(strata, [words + ["backend=mpi"]]), "backend", "gloo")
    if os.path.exists("/dev/nvidiactl"):
        print("here is a GPU: nccl is not refused")
        return
    for backend in ["nccl", "both", "cpu:gloo,cuda:nccl"]:
        expect_errors(run(strata, [words + ["backend=" + backend]]),
                      'backend "%s" needs a GPU' % backend, "0 GPUs", 'backend="gloo"')


if __name__ == "__main__":
    program.main(globals())
