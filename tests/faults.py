#!/usr/bin/env python3
"""What a job does when its ranks or its launcher are killed or stopped, and what its processes
listen on.

usage: faults.py STRATA MODELS TEST...

$STRATA_FAULT stops a rank at an action; it is killed there once it is seen to stand. The gate takes
some of the cases and is patient with a busy machine; TEST=1, and killed_launchers=100, take all of
them and hold the program to its seconds.
"""

import glob
import json
import os
import random
import re
import signal
import socket
import subprocess
import time

import program
from program import require

PATIENT = 10  # times the promised seconds

JOB = """
local strata = require "strata"
local nn, F = strata.nn, strata.F
return strata.job {
  layers = { nn.Linear{8, 8}, nn.ReLU{}, nn.Linear{8, 8}, nn.Linear{8, 2} },
  loss = nn.CrossEntropyLoss{}, optimizer = {"sgd", lr = 0.01}, steps = 1000000,
  batch = { micro_batches = 2, micro_batch_size = 4 },
  data = function(i) return F.ones{4, 8}, F.tensor{0, 1, 1, 0} end,
  partition = "uniform", schedule = "1f1b", device = "cpu", threads = 1,
}
"""
GRID = ["--pipe=2", "--data=2"]  # rank r is in stage r / 2, replica r % 2
WORLD = 4


def start(strata, *flags, fault=None, flip=None, grid=tuple(GRID), **options):
    environment = {"STRATA_FAULT": fault} if fault else {"STRATA_FLIP": flip} if flip else {}
    return strata.start("train", "job.lua", "--print_every=1", *grid, *flags, environment=environment, **options)


def wait_until(condition, what, shown):
    """Looks again and again: nothing tells of another process's state."""
    end = time.monotonic() + program.PATIENCE / 1000
    while not condition():
        require(time.monotonic() < end, what, shown())
        time.sleep(0.005)


def states(pid):
    """Of the threads of a process: R runs, S sleeps, T is stopped."""
    found = []
    for task in os.listdir("/proc/%d/task" % pid):
        try:
            found.append(program.stat("%d/task/%s" % (pid, task))[0])
        except OSError:
            pass
    return found


def rank_pids(job):
    return {name: pids[0] for name, pids in job.pids().items() if name.startswith("strata rank")}


def wait_for_stop(job, rank, world=WORLD):
    """Until the rank is stopped and all others, who can do nothing more without it, sleep."""
    name = "strata rank %d" % rank

    def stands():
        pids = rank_pids(job)
        return (len(pids) == world and "T" in states(pids[name]) and
                all("R" not in states(pid) for pid in pids.values()))

    wait_until(stands, "a stopped rank %d" % rank, job.pids)
    return rank_pids(job)[name]


def expect_end_within(job, seconds, since, pids):
    """(exit code, errors, seconds taken) of the job once all its processes are gone."""
    job.expect_all_gone(pids)
    code, _, errors = job.end()
    spent = time.monotonic() - since
    require(spent < seconds, "the end within %g s" % seconds, spent)
    require(not job.pids(), "no process left", job.pids())
    return code, errors, spent


def killed_ranks(strata, all_of_them=0):
    """kill -9 of each rank wherever it can be: the rank, its stage and what the others wait for."""
    cases = [(rank, action) for rank in range(WORLD)
             for action in ["START", "%dF1", "%dB0", ["0SEND_F1", "1SEND_B0"][rank // 2], "%dREDUCE_GRAD", "%dSTEP"]]
    slowest = 0
    for rank, action in cases if all_of_them else cases[::3] + [(2, "1SEND_B0")]:
        stage, replica = divmod(rank, 2)
        action = action.replace("%d", str(stage))
        job = start(strata, fault="%d:%s:STOP" % (rank, action))
        victim = wait_for_stop(job, rank)
        pids = job.pids()
        since = time.monotonic()
        os.kill(victim, signal.SIGKILL)
        code, errors, spent = expect_end_within(job, 2 if all_of_them else 2 * PATIENT, since, pids)
        slowest = max(slowest, spent)
        require(code == 137, "exit code 137", (code, errors))
        require(errors.startswith("strata: rank %d (stage %d, replica %d) was ended by signal 9 "
                                  "(SIGKILL)" % (rank, stage, replica)), "the cause", errors)
        others = re.findall(r"^  rank (\d) \(stage (\d).*\): \S+, waiting for .+$", errors, re.M)
        require(others == [(str(r), str(r // 2)) for r in range(WORLD) if r != rank],
                "what the others waited for", errors)
        print("%s of rank %d: %.3f s" % (action, rank, spent), errors)
    print("all gone within %.3f s" % slowest)


def killed_threads(strata):
    """Ranks that are threads of one process die together."""
    job = start(strata, "--transport=threads", fault="3:1B0:KILL")
    code, _, errors = job.end()
    cause = "strata: rank 0 (the process of all 4 ranks) was ended by signal 9"
    require(code == 137 and errors.startswith(cause), "the cause", (code, errors))


def stopped_ranks(strata, all_of_them=0):
    """SIGSTOP: the watchdogs of the others name it, and everything ends."""
    cases = [(0, "0F1"), (3, "1B0"), (1, "0REDUCE_GRAD"), (2, "1STEP"), (1, "START")]
    for rank, action in cases if all_of_them else cases[1:3]:
        limit = "--timeout=3" if action == "START" else "--hang_timeout=1"  # no watchdog before
        job = start(strata, limit, fault="%d:%s:STOP" % (rank, action))
        wait_for_stop(job, rank)
        pids = job.pids()
        code, errors, spent = expect_end_within(job, 7 if all_of_them else 7 * PATIENT, time.monotonic(), pids)
        print("%s of rank %d: %.3f s" % (action, rank, spent), errors)
        require(code == 1, "exit code 1", (code, errors))
        stopped = r"rank %d" % rank
        require(re.search("waiting for %s|waits at .* for %s" % (stopped, stopped), errors),
                "who is waited for", errors)
        told = "did not come within" if action == "START" else "no action was completed for 1"
        require(told in errors, "why", errors)
        silent = "\n  %s (stage %d, replica %d): no answer" % (stopped, rank // 2, rank % 2)
        require(silent in errors, "who does not answer", errors)


def killed_launchers(strata, times=0):
    """kill -9 of the launcher, from before the ranks start until they train."""
    chance = random.Random(4)
    slowest = 0
    for _ in range(times or 10):
        job = start(strata)
        for _ in range(chance.randrange(8)):  # so many lines: some before the first step
            job.process.stdout.readline()
        time.sleep(chance.random() * 0.05)  # the moment; what must hold does not depend on it
        job.process.kill()
        since = time.monotonic()
        job.process.wait()
        wait_until(lambda: not job.pids(), "the end of all processes", job.pids)
        slowest = max(slowest, time.monotonic() - since)
        require(slowest < (1 if times else PATIENT), "all gone within a second", slowest)
    print("all gone within %.3f s" % slowest)


def listeners(job):
    """(address, port) of all places at which the job's processes listen, as /proc/net shows them."""
    inodes = set()
    for pid in [job.process.pid] + [pid for pids in job.pids().values() for pid in pids]:
        for descriptor in os.listdir("/proc/%d/fd" % pid):
            try:
                found = re.fullmatch(r"socket:\[(\d+)\]", os.readlink("/proc/%d/fd/%s" % (pid, descriptor)))
            except OSError:
                continue
            if found:
                inodes.add(found.group(1))
    found = []
    for table in ["/proc/net/tcp", "/proc/net/tcp6"]:
        with open(table) as file:
            for row in [line.split() for line in list(file)[1:]]:
                if row[3] == "0A" and row[9] in inodes:
                    found.append(tuple(row[1].split(":")))
    return found


def loopback_listeners(strata):
    """No process of a local job listens on another address than loopback, at any time; before the
    ranks connect, nobody listens at all."""
    for action, least in [("START", 0), ("0F0", 4)]:  # every rank has Gloo's
        job = start(strata, fault="0:%s:STOP" % action)
        wait_for_stop(job, 0)
        found = [address for address, _ in listeners(job)]
        job.process.kill()
        job.process.wait()
        require(len(found) >= least and set(found) <= {"0100007F", "0" * 24 + "01000000"},
                "listeners on loopback at " + action, found)
        require(action != "START" or not found, "no listener at START", found)


def strangers(strata):
    """Whatever comes to the ports of a training changes none of its bits."""
    steps, chance = 1000, random.Random(5)
    strata.run("train", *DIGITS, "--steps=%d" % steps, "--log=whole.jsonl")
    job = strata.start("train", *DIGITS, "--steps=%d" % steps, "--log=log.jsonl")
    job.wait_for_steps()
    ports = {int(port, 16) for _, port in listeners(job)}
    require(len(ports) == 4, "a port of each rank's Gloo", ports)
    words = [b"", b"\0", b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03", bytes(8),
             b"\1" + bytes(7), b"\xff" * 8, bytes(1 << 20)] + [chance.randbytes(2 ** i) for i in range(1, 20)]
    connections = []
    for port in ports:
        for word in words:
            connection = socket.create_connection(("127.0.0.1", port))
            connection.setblocking(False)
            try:
                connection.send(word)  # what it takes
            except OSError:
                pass  # sent away already
            (connections.append if chance.random() < 0.5 else socket.socket.close)(connection)
    require(job.process.poll() is None, "a training that goes on", job.process)
    code, out, errors = job.end()
    require(code == 0, "a training to its end", (code, out, errors))
    require(losses(strata, "log.jsonl", steps) == losses(strata, "whole.jsonl", steps), "the same bits", (out, errors))
    for connection in connections:
        connection.close()


def jobs_at_once(strata, rounds=1):
    """Jobs that start together never meet at a port."""
    for _ in range(rounds):
        jobs = [start(strata, "--steps=3", "--log=log%d.jsonl" % i, grid=["--pipe=2"]) for i in range(6)]
        for job in jobs:
            code, out, errors = job.end()
            require(code == 0 and "step 3/3" in out, "a training", (code, out, errors))
        losses = [[step["loss"] for step in program.steps(strata.path("log%d.jsonl" % i))] for i in range(6)]
        require(all(one == losses[0] for one in losses), "the same losses", losses)


DIGITS = ["digits.lua", "--pipe=2", "--data=2", "--transport=gloo", "--threads=1", "--print_every=1"]


def losses(strata, log, steps):
    found = program.losses(strata.path(log))
    require(len(found) == steps, "%d steps" % steps, len(found))
    return found


def train_through(strata, steps, signals, *flags):
    """A training of 4 ranks, of which one gets a signal, once for each signal. What it showed, and
    the seconds from each signal to the next step."""
    job = strata.start("train", *DIGITS, "--steps=%d" % steps, "--max_restarts=%d" % len(signals),
                       "--log=log.jsonl", *flags)
    shown, spent = job.wait_for(r"^step +20/"), []
    for victim, number in enumerate(signals):
        since = time.monotonic()
        os.kill(rank_pids(job)["strata rank %d" % victim], number)
        shown += job.wait_for("^digits:")  # the header of the next run
        shown += job.wait_for_steps()
        spent.append(time.monotonic() - since)
    code, out, errors = job.end()
    require(code == 0, "a training to its end", (code, shown, out, errors))
    return shown + out, errors, spent


def restarts(strata, all_of_them=0):
    """Ranks are lost twice; the training ends with the bits of one without faults."""
    steps = 400
    strata.run("train", *DIGITS, "--steps=%d" % steps, "--log=whole.jsonl")
    signals = [signal.SIGKILL, signal.SIGSEGV]
    out, errors, spent = train_through(strata, steps, signals, "--save.dir=runs", "--save.every=8")
    for count, number in enumerate(signals, 1):
        require("rank %d (stage 0, replica %d) was ended by signal %d" % (count - 1, count - 1, number)
                in errors, "the cause", errors)
        require("strata: restart %d of 2, from the last save" % count in errors, "a restart", errors)
    require(len(re.findall(r"^goes on after step \d+ of runs/", out, re.M)) == 2, "the saves", out)
    require(losses(strata, "log.jsonl", steps) == losses(strata, "whole.jsonl", steps), "the same bits", (out, errors))
    print("training again after", ["%.2f s" % seconds for seconds in spent])
    require(max(spent) < (3 if all_of_them else 3 * PATIENT), "training again within 3 s", spent)


def restarts_without_saves(strata):
    steps = 200
    strata.run("train", *DIGITS, "--steps=%d" % steps, "--log=whole.jsonl")
    _, errors, _ = train_through(strata, steps, [signal.SIGKILL])
    require("restart 1 of 1, from the beginning: there are no saves (--save.dir)" in errors,
            "that it begins again", errors)
    require(losses(strata, "log.jsonl", steps) == losses(strata, "whole.jsonl", steps), "the same bits", errors)


def restarts_with_nothing_new(strata):
    """Weights, or a save of another training, are begun with again; the best save is gone on from."""
    strata.run("train", *DIGITS, "--steps=6", "--save.dir=old")
    steps = 200
    begins = [("--weights=old", "begins with the weights of old/step-00000006", "nothing was saved since"),
              ("--resume=old/step-00000006", "goes on after step 6 of old/step-00000006", "nothing was saved since"),
              ("--weights=old", "goes on after step", "from the best save")]
    for count, (flag, begin, whence) in enumerate(begins):
        best = ["--eval.every=10", "--save.best=test.loss"] if "best" in whence else []
        flags = ["--save.dir=new%d" % count, *best]
        for log in glob.glob(strata.path("*.jsonl")):
            os.remove(log)
        strata.run("train", *DIGITS, "--steps=%d" % steps, "--log=whole.jsonl", flag, *best,
                   "--save.dir=whole%d" % count)
        out, errors, _ = train_through(strata, steps, [signal.SIGKILL], flag, *flags)
        require(whence in errors, "where it goes on", errors)
        require(out.count(begin) == (1 if best else 2), "the beginning", (out, errors))
        done, whole = (program.steps(strata.path(log)) for log in ["log.jsonl", "whole.jsonl"])
        for step, expected in zip(done, whole, strict=True):
            require(all(step[key] == expected[key] for key in ["step", "loss", "grad_norm"]),
                    "the same bits", (step, expected, out, errors))


def hung_ranks(strata):
    """A rank that hangs is found by the others, and all begin again."""
    steps = 200
    job = strata.start("train", *DIGITS, "--steps=%d" % steps, "--max_restarts=1", "--log=log.jsonl",
                       "--hang_timeout=3", "--save.dir=runs", "--save.every=4")
    job.wait_for(r"^step +10/")
    os.kill(rank_pids(job)["strata rank 2"], signal.SIGSTOP)
    code, out, errors = job.end()
    require(code == 0 and re.search(r"^goes on after step \d+ of runs/", out, re.M),
            "a training to its end", (code, out, errors))
    require("no action was completed for 3" in errors, "why", errors)
    losses(strata, "log.jsonl", steps)


def fruitless_restarts(strata):
    """What fails at the same place each time ends with the first cause."""
    job = start(strata, "--max_restarts=10", "--steps=20", fault="1:0B1:KILL")
    code, out, errors = job.end()
    require(code == 137, "the first cause's code", (code, out, errors))
    require(errors.count("strata: restart ") == 2, "two restarts", errors)
    require("the job was started again 2 times and did not come further than step 0" in errors,
            "that they led nowhere", errors)
    code, out, errors = start(strata, "--max_restarts=10", "--nproc=3").end()
    require(code == 2 and "restart" not in errors, "what fails each time ends at once", errors)
    strata.run("train", "job.lua", "--restart_window=2h", code=2,
               says="--restart_window=2h counts restarts, but there are none")
    strata.run("train", "job.lua", "--max_restarts=1", "--restart_window=0", code=2,
               says="--restart_window=0: expected a time")
    strata.run("train", "job.lua", "--max_restarts=1", "--restart_window=soon", code=2,
               says="--restart_window=soon: expected a time")
    strata.run("train", "job.lua", "--max_restarts=1", "--nnodes=2", "--node_rank=0", "--master_addr=127.0.0.1", code=2,
               says="--max_restarts: --nnodes starts the ranks of this job")


def flight_records(strata):
    """SIGQUIT: what all ranks did last, at any time, also of a rank that is stopped."""
    job = start(strata, "--log_dir=logs")
    job.wait_for_steps()
    job.process.send_signal(signal.SIGQUIT)
    told, ranks = strata.flight_of(job.wait_for("^flight record of all ranks: logs/flight-"))
    require(told.startswith("asked for by SIGQUIT\n") and len(ranks) == WORLD, "four ranks", told)
    for rank, text in ranks.items():
        require(re.match(r" \(stage %d, replica %d\): [\d,]+ events\nrank %s[ :]" % (*divmod(int(rank), 2), rank), text)
                and "all_reduce " in text and "\nstack:\n" in text, "actions, collectives and a stack", text)
    job.wait_for_steps()  # it goes on
    stopped = rank_pids(job)["strata rank 2"]
    os.kill(stopped, signal.SIGSTOP)
    wait_for_stop(job, 2)
    job.process.send_signal(signal.SIGQUIT)
    told, ranks = strata.flight_of(job.wait_for("^flight record of all ranks: logs/flight-"))
    require(re.search(r"^ *\d\S* \S+ +\d+ +1 +1[FB]", ranks["2"], re.M), "the stopped one's actions", told)
    os.kill(stopped, signal.SIGCONT)
    job.wait_for_steps()
    job.process.send_signal(signal.SIGINT)
    job.end()
    job = start(strata, "--transport=threads", "--log_dir=logs")
    job.wait_for_steps()
    job.process.send_signal(signal.SIGQUIT)
    told, ranks = strata.flight_of(job.wait_for("^flight record of all ranks: logs/flight-"))
    require(sorted(ranks) == list("0123") and "\nstack:\n" in ranks["3"], "threads, too", told)
    job.process.send_signal(signal.SIGINT)
    job.end()


def flight_of_the_killed(strata):
    """A rank that was killed left what it did last; who keeps nothing gets no file."""
    code, _, errors = start(strata, "--log_dir=logs", fault="3:1B0:KILL").end()
    told, ranks = strata.flight_of(errors)
    require(code == 137 and re.search(r"^ *\S+ \S* +0 +1 +1B0 .*goes on", ranks["3"], re.M),
            "the action at which it died", told)
    require("was ended by signal 9" in told, "why", told)
    _, _, errors = start(strata, fault="3:1B0:KILL").end()
    require("flight record" not in errors and not [name for name in os.listdir(strata.folder)
                                                   if name.startswith("flight")], "no file", errors)


def hangs(strata, all_of_them=0):
    """Without a --hang_timeout a rank that stands still is found in ten seconds."""
    job = start(strata, "--log_dir=logs")
    job.wait_for(r"^step +10/")
    os.kill(rank_pids(job)["strata rank 1"], signal.SIGSTOP)
    pids = job.pids()
    code, errors, spent = expect_end_within(job, 14 if all_of_them else 14 * PATIENT, time.monotonic(), pids)
    require(code == 1 and "no action was completed for 10.0 s" in errors and
            "rank 1 (stage 0, replica 1): no answer" in errors, "the rank that hangs", errors)
    told, ranks = strata.flight_of(errors)
    require(len(ranks) == WORLD and "goes on" in ranks["1"], "the record", told)
    print("found and ended after %.1f s" % spent)


def hangs_in_scripts(strata):
    """A function of the script that loops for ever is named with its line, as is one that waits for an operator; one
    within a C function of Lua's has its thread's."""
    stuck = """
local steps = 0
local function stick()
  %s
end
local function layer(x)
  steps = steps + 1
  if steps > 4 and strata.comm.rank{axis = "world"} == 1 then stick() end
  return x
end
"""
    for line, place in [("while true do steps = steps + 1 end",
                         r"\nstack:\nscript:\n  stuck.lua:6 in stick\n  stuck.lua:10 in (.*\n)+thread:\n"),
                        ("F.matrix_power(F.ones{2000, 2000}, 2 ^ 50)",
                         r"\nstack:\nscript:\n  \[C\] in matrix_power\n  stuck.lua:6 in stick\n(.*\n)+thread:\n  \S.*"),
                        ('("a"):rep(60):find(("a?"):rep(60) .. ("a"):rep(60))', r"\nstack:\n  \S.*")]:
        strata.write("stuck.lua", JOB.replace("\nreturn", stuck % line + "\nreturn").replace("nn.ReLU{},", "layer,"))
        job = strata.start("train", "stuck.lua", "--hang_timeout=1", "--log_dir=logs", *GRID)
        code, _, errors = job.end()
        require(code == 1 and "rank 1 (stage 0): 0F0\n" in errors, "the rank that hangs", errors)
        told, ranks = strata.flight_of(errors)
        require(re.search(place, ranks["1"]), "the script's place, and the thread's", ranks["1"])
        require("script:" not in ranks["0"], "nothing of who is in none", ranks["0"])
    reads = JOB.replace("return F.ones", "if i > 8 then while true do end end return F.ones")
    strata.write("reads.lua", reads)
    job = strata.start("train", "reads.lua", "--hang_timeout=1", "--log_dir=logs", "--print_every=1", *GRID)
    shown = ""
    for shown in job.process.stderr:
        if "the script is at:" in shown:
            break
    shown = job.process.stderr.readline()
    require(re.match(r"(rank \d: )?  reads.lua:8 in ", shown), "the place of data that do not come", shown)
    job.process.kill()
    job.process.wait()


def clock_jumps(strata):
    """The time of day goes a day ahead, and then two back: nobody is taken for dead, late or hung."""
    def set_clock(seconds):
        with open(strata.path("clock"), "r+b" if os.path.exists(strata.path("clock")) else "wb") as file:
            file.write(seconds.to_bytes(8, "little", signed=True))

    def wait_for_saves(job, count):
        for _ in range(count):
            job.wait_for("^saved step ")

    day = 24 * 3600
    set_clock(0)
    environment = {"LD_PRELOAD": strata.root + "/tests/libjumping_clock.so", "STRATA_CLOCK": strata.path("clock")}
    train = [*DIGITS, "--steps=100000000", "--save.dir=runs", "--save.every=8"]
    job = strata.start("train", *train, "--log=log.jsonl", "--hang_timeout=5", environment=environment)
    wait_for_saves(job, 2)
    for ahead in (day, -day):
        set_clock(ahead)
        wait_for_saves(job, 2)
        strata.run("train", *train, "--resume", code=2, environment=environment, says="another training saves to runs")
        job.process.send_signal(signal.SIGQUIT)
        job.wait_for("^flight record of all ranks: runs/")
        wait_for_saves(job, 2)
    job.process.send_signal(signal.SIGINT)
    code, out, errors = job.end()
    require(code == 130 and errors.startswith("strata: interrupted"), "no other end", (code, out, errors))
    found = program.losses(strata.path("log.jsonl"))
    strata.run("train", *DIGITS, "--steps=%d" % len(found), "--log=whole.jsonl")
    require(found == program.losses(strata.path("whole.jsonl")), "the same bits", found[-3:])


LOSS = r"ragged.lua:\d+: the loss CrossEntropyLoss\(\) \(stage \d, micro-batch 1\): "
RAGGED = {  # what data gives at micro-batch 5, and what is said
    "F.ones{4, 8}, F.tensor{0, 1, 1}": LOSS + r".*labels in the shape of the output \(4, 2\) .*got Long \(3,\)",
    "F.ones{4, 8}, F.tensor{0, 1, 1, 2}": LOSS + r".*expected a label from 0 to 1, got 2",
    "F.ones{4, 7}, F.tensor{0, 1, 1, 0}": r"micro-batch 1 from ragged.lua:8: .*layer 0 Linear.* expects last dim 8",
    "F.ones{0, 8}, F.tensor{}": "ragged.lua:8: the data function gave micro-batch 5 without rows",
    "nil": "ragged.lua:8: the data function for micro-batch 5: expected the input, .*got nothing",
    '"a", "b"': "ragged.lua:8: the data function for micro-batch 5: expected the input, .*got the string",
    "F.ones{4, 8}": LOSS + "CrossEntropyLoss: expected 1 output and 1 target, got 1 output and 0 targets",
    "F.ones{4, 8}, F.ones{4, 2, 3}": LOSS + "CrossEntropyLoss: expected labels",
}


def ragged_data(strata):
    """Data that become too short, too narrow, empty or none at all in mid-training are named on every plan."""
    for given, told in RAGGED.items():
        job = JOB.replace("return F.ones{4, 8}", "if i == 5 then return %s end return F.ones{4, 8}" % given)
        strata.write("ragged.lua", job)
        for grid in ([], ["--pipe=2"]):
            code, out, errors = strata.start("train", "ragged.lua", "--print_every=1", "--steps=20", *grid).end()
            require(code == 2 and re.search(told, errors), told, (given, code, out, errors))
            require(re.findall(r"^step +(\d+)/", out, re.M) == ["1", "2"], "two steps before it", out)


def saves_now(strata):
    """SIGUSR1: a save, and the training goes on."""
    for transport in ("gloo", "threads"):
        job = start(strata, "--save.dir=runs_" + transport, "--transport=" + transport)
        job.wait_for_steps()
        job.process.send_signal(signal.SIGUSR1)
        job.wait_for(r"^saved step \d+ to runs_%s/" % transport)
        job.wait_for_steps()
        job.process.send_signal(signal.SIGINT)
        require(job.end()[0] == 130, "it went on", transport)
        strata.run("inspect", "runs_" + transport, says="whole")
    job = start(strata)
    job.wait_for_steps()
    job.process.send_signal(signal.SIGUSR1)
    job.wait_for("^SIGUSR1: nothing is saved")
    job.process.send_signal(signal.SIGINT)
    job.end()


def slow_ranks(strata):
    """A rank that takes longer than the others is named within 20 steps, on the terminal and in the log."""
    strata.write("slow.lua", JOB.replace("nn.Linear{8, 8}, nn.Linear{8, 2}", """nn.Linear{8, 8}, function(x)
  local y = F.ones{64, 64}
  for i = 1, strata.comm.rank{axis = "world"} == 3 and 5000 or 500 do y = y * 1 end
  return x
end, nn.Linear{8, 2}"""))
    job = strata.start("train", "slow.lua", "--steps=25", "--log=log.jsonl", *GRID)
    code, out, errors = job.end()
    named = re.search(r"^step +(\d+)/25  rank 3 is slow: (\S+) times", out, re.M)
    require(code == 0 and named and int(named.group(1)) <= 20, "the slow rank", (out, errors))
    logged = [record["stragglers"] for record in program.steps(strata.path("log.jsonl")) if "stragglers" in record]
    require(logged and "3" in logged[0] and logged[0]["3"] >= 1.5, "it in the log", logged)


def mounted(*mounts):
    """What starts the program where these mounts are its own; None where that may not be."""
    script = " && ".join(["mount -t tmpfs " + mount for mount in mounts] + ['exec "$@"'])
    before = ["unshare", "--mount", "sh", "-c", script, "sh"]
    try:
        allowed = subprocess.run([*before[:3], "-c", script, "sh", "true"], stderr=subprocess.DEVNULL).returncode == 0
    except OSError:
        allowed = False
    if not allowed:
        program.skipped("no mounts of one's own here")
    return before if allowed else None


def poor_machines(strata):
    """Few descriptors, next to no /dev/shm, a folder that may only be read, one that vanishes."""
    code, out, errors = start(strata, "--steps=5", before=["prlimit", "--nofile=12:12"]).end()
    require(code == 1 and "oo many open files" in errors and len(errors) < 2000, "the descriptors", (code, out, errors))
    os.makedirs(strata.path("runs"), exist_ok=True)
    before = mounted("-o size=4k none /dev/shm")
    if before:
        code, out, errors = start(strata, "--steps=5", before=before).end()
        require(code == 0 and "step 5/5" in out, "a training", (code, out, errors))
        before = mounted("-o ro none " + strata.path("runs"))
        code, out, errors = start(strata, "--steps=5", "--save.dir=runs", before=before).end()
        require(code in (1, 2) and "Read-only file system" in errors, "that it cannot be written", (code, out, errors))
    job = start(strata, "--save.dir=gone", "--save.every=5")
    job.wait_for("^saved step ")
    os.rename(strata.path("gone"), strata.path("away"))  # at one moment: saves are written meanwhile
    job.wait_for_steps()
    job.process.send_signal(signal.SIGTERM)
    code, out, errors = job.end()
    told = "was not saved" in errors or "gone/" in errors or os.path.isdir(strata.path("gone"))
    require(code in (1, 143) and told, "what became of the saves", (code, out[-2000:], errors))


def signals_to_one_rank(strata):
    """Ranks leave SIGTERM, SIGINT, SIGHUP, SIGQUIT and SIGUSR1 to the launcher."""
    job = start(strata)
    job.wait_for_steps()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1):
        os.kill(rank_pids(job)["strata rank 1"], number)
    for _ in range(3):
        job.wait_for_steps()
    job.process.send_signal(signal.SIGINT)
    require(job.end()[0] == 130, "it went on", job.process.returncode)


def ended(strata, number):
    """The exit code of a training whose launcher gets a signal."""
    job = start(strata)
    job.wait_for_steps()
    job.process.send_signal(number)
    return job.end()[0]


def unread(strata):
    """The exit code of a training whose reader ends."""
    job = start(strata)
    job.wait_for_steps()
    job.process.stdout.close()
    return job.process.wait()


def corrupted_ranks(strata):
    """A rank that gives wrong bits in a checked step is named; no other start, and the last save stands."""
    wrong = r" on %s \(stage ., layers . to .\) gave wrong bits( when it repeated stage .)?: "
    cases = [("gloo", "1:weight_gradient:5", "rank 1" + wrong + "the weight gradient of"),
             ("gloo", "2:update:7:lasting", "rank 2" + wrong + "the updated parameters"),
             ("gloo", "0:message:5", "the message from rank 0 on %s"),
             ("gloo", "1:packet:3", "what rank 1 on %s"),
             ("threads", "3:parameter:9", r"rank 3 on %s \(stage 1, layers 2 to 3\) has wrong bits in memory: ")]
    for transport, flip, says in cases:
        folder = "runs_%s_%s" % (transport, flip[0])
        job = start(strata, "--check=every:1", "--transport=" + transport, "--save.dir=" + folder, "--save.every=1",
                    "--save.keep=0", "--max_restarts=3", flip=flip)
        code, _, errors = job.end()
        require(code == 163, "exit code 163", (code, errors))
        step = re.match(r"strata: step (\d+) was not taken: ", errors)
        require(step and re.match(says % socket.gethostname(), errors[step.end():]), says, errors)
        require(not job.pids(), "no process left", job.pids())
        saves = [name for name in os.listdir(os.path.join(strata.folder, folder)) if name.startswith("step-")]
        require(all(int(name[5:]) < int(step[1]) for name in saves), "no save of the step", (saves, errors))
        if saves:
            strata.run("train", "job.lua", *GRID, "--resume=" + folder, "--steps=" + step[1], says="goes on after step")


def killed_in_checks(strata):
    """A rank that dies where the others wait for it in a check is named as in any step."""
    for rank in range(WORLD):
        job = start(strata, "--check=every:1", fault="%d:%dSTEP:KILL" % (rank, rank // 2))
        code, _, errors = job.end()
        require(code == 137, "exit code 137", (code, errors))
        require(errors.startswith("strata: rank %d (stage %d" % (rank, rank // 2)), "the cause", errors)


def faulty(strata, signal_name):
    return start(strata, fault="1:0B1:" + signal_name).end()[0]


def aborted(strata):
    job = start(strata)
    job.wait_for_steps()
    os.kill(rank_pids(job)["strata rank 3"], signal.SIGABRT)
    return job.end()[0]


def exit_codes(strata):
    """Those of the program's table, each by a job that ends with it."""
    cases = {0: lambda: start(strata, "--steps=1").end()[0],
             1: lambda: strata.start("train", "job.lua", "--steps=1", "--log=/dev/full").end()[0],
             2: lambda: start(strata, "--stepz=1").end()[0],
             129: lambda: ended(strata, signal.SIGHUP),
             130: lambda: ended(strata, signal.SIGINT),
             134: lambda: aborted(strata),
             137: lambda: faulty(strata, "KILL"),
             139: lambda: faulty(strata, "SEGV"),
             141: lambda: unread(strata),
             143: lambda: ended(strata, signal.SIGTERM),
             163: lambda: start(strata, "--check=every:1", flip="1:update:1").end()[0]}
    table = json.loads(strata.run("help", "--json"))["exit_codes"]
    known = {int(code) for row in table for code in re.findall(r"\b\d{1,3}\b", row["code"] + " " + row["means"])}
    require(known - {128} == set(cases), "the codes of the program's table", table)
    for code, case in cases.items():
        found = case()
        require(found == code, "exit code %d" % code, found)


if __name__ == "__main__":
    program.main(globals(), prepare=lambda strata: strata.write("job.lua", JOB))
