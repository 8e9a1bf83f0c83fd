#!/usr/bin/env python3
"""Trainings that one fault after the other befalls, by a plan that a seed gives, and what must hold:
- a rank or a machine that is lost or hangs is named, once, and all go on from a save by themselves;
- they go on from the newest save that was told of, at most two intervals behind where they were: one that
  was not told of was still being written;
- all losses and norms have the bits of a training that nothing befell, and so have those that begin with
  each save that is left;
- what ends the launcher ends every process, and the training goes on with --resume.

usage: chaos.py STRATA MODELS [--seed=N] [--minutes=M [--gap=SECONDS]] [--only=SETTING...]

Without --minutes, as in the gate, a few faults come after so many steps each. With it, the minutes are
shared out among the settings, faults come a minute apart in the mean (--gap), and 90 % of the time must be
trained: all but that from each fault to the first step that was not there before, which is 6 s at most in the mean.
"""

import argparse
import os
import queue
import random
import re
import signal
import subprocess
import threading
import time

import hosts
import program
from program import require

MODELS = {
    "digits": ["digits.lua", "--epochs=100000"],
    "textlm": ["textlm.lua", "--dim=32", "--heads=2", "--depth=2", "--seq=32", "--steps=1000000"],
}
GRID = ["--pipe=2", "--data=2", "--device=cpu", "--threads=1"]  # rank r's first stage is r / 2, its replica r % 2
WORLD = 4
SAVE_EVERY = 20
MOST_SECONDS = 6  # of a fault, in the mean
MOST_LOST = 0.1  # of the time
SETTINGS = ["%s_%s" % (model, transport) for transport in ("gloo", "threads", "hosts") for model in MODELS]


def parent(pid):
    return int(program.stat(pid)[1])


class Training:
    """A training, what it shows line by line, and the faults that befall it."""

    def __init__(self, strata, setting, chance):
        self.strata, self.chance = strata, chance
        self.model, _, self.transport = setting.partition("_")
        self.machines = None
        self.flags = [*MODELS[self.model], *GRID, "--print_every=1", "--log=log.jsonl", "--save.dir=runs",
                      "--save.every=%d" % SAVE_EVERY, "--save.keep=3", "--max_restarts=1000000", "--hang_timeout=3"]
        self.step = self.saved = 0     # done, told to be saved
        self.begun = []                # after which steps it went on
        self.causes, self.restarts = [], 0
        self.shown = []

    def __enter__(self):
        if self.transport == "hosts":
            self.machines = hosts.made_here(hosts.Namespaces())
            if not self.machines:
                return None
            self.flags += hosts.over_hosts(self.strata, self.machines.ssh(), self.machines.addresses, slots=2)
        else:
            self.flags.append("--transport=" + self.transport)
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        if self.machines:
            self.machines.__exit__()
        if hasattr(self, "job") and self.job.process.poll() is None:
            self.job.process.kill()
            self.job.process.wait()

    def start(self, *flags):
        self.job = self.strata.start("train", *self.flags, *flags, stderr=subprocess.STDOUT)  # in its order
        self.lines, self.has_ended = queue.Queue(), False
        threading.Thread(target=self.read, args=(self.job.process.stdout, self.lines), daemon=True).start()

    @staticmethod
    def read(stream, lines):
        for line in stream:
            lines.put(line)
        lines.put(None)

    def take(self, timeout=None):
        """The next line, or None when the time is over or there are no more."""
        try:
            line = self.lines.get(timeout=timeout)
        except queue.Empty:
            return None
        if line is None:
            self.has_ended = True
            return None
        self.shown.append(line)
        for pattern, note in NOTES:
            if found := re.match(pattern, line):
                note(self, found)
        return line

    def wait(self, condition, what):
        end = time.monotonic() + program.PATIENCE / 1000
        while not condition():
            self.take(timeout=1)
            require(time.monotonic() < end and (not self.has_ended or condition()), what, self.last_lines())

    def last_lines(self):
        return "".join(self.shown[-60:])

    def rank_pid(self, rank):
        return self.job.pids()["strata rank %d" % rank][0]

    def newer_step(self, before):
        self.wait(lambda: self.step > before, "a step after step %d" % before)

    def end(self):
        """Exit code of the launcher, behind which nothing is left."""
        self.wait(lambda: self.has_ended, "the launcher's end")
        code = self.job.process.wait()
        pids = self.job.pids()
        self.job.expect_all_gone(pids)
        return code

    # ---- Faults. Each gives what must be shown as the cause of a restart; None: the training goes on.

    def killed(self, number):
        rank = self.chance.randrange(WORLD)
        told = r"rank %d \(stages? %d[\d, ]*, replica %d\) was ended by signal %d" % (rank, *divmod(rank, 2), number)
        if self.transport == "threads":
            rank, told = 0, r"rank 0 \(the process of all 4 ranks\) was ended by signal %d" % number
        os.kill(self.rank_pid(rank), number)
        return told

    def kill(self):
        return self.killed(signal.SIGKILL)

    def crash(self):
        return self.killed(signal.SIGSEGV)

    def stop(self):
        rank = self.chance.randrange(WORLD)
        os.kill(self.rank_pid(rank), signal.SIGSTOP)
        return r"(?s)no action was completed for 3.*\n  rank %d \(.*\): no answer" % rank

    def pause(self):
        pid = self.rank_pid(0 if self.transport == "threads" else self.chance.randrange(WORLD))
        os.kill(pid, signal.SIGSTOP)
        self.wait(lambda: program.stat(pid)[0] == "T", "a stopped rank")
        os.kill(pid, signal.SIGCONT)

    def starter(self):
        os.kill(parent(self.rank_pid(0)), signal.SIGKILL)
        return "the process that started the ranks was ended by signal 9"

    def machine(self):
        host = self.chance.randrange(2)
        os.kill(parent(parent(self.rank_pid(2 * host))), signal.SIGKILL)
        return "the connection to %s is lost" % self.machines.addresses[host]

    def cable(self):
        words = ["-n", self.machines.names[0], "link", "set", self.machines.ends[0]]
        self.machines.ip(*words, "down")
        seen = self.restarts
        self.wait(lambda: self.restarts > seen, "a restart")
        self.machines.ip(*words, "up")
        return r"no action was completed for 3|lost the connection to rank \d"

    def signals(self):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1):
            os.kill(self.rank_pid(0), number)

    def save(self):
        before = self.saved
        self.job.process.send_signal(signal.SIGUSR1)
        self.wait(lambda: self.saved > before, "a save")

    def record(self):
        self.job.process.send_signal(signal.SIGQUIT)
        self.wait(lambda: self.shown[-1].startswith("flight record of all ranks: runs/"), "a flight record")

    def terminate(self):
        self.job.process.send_signal(signal.SIGTERM)
        code = self.end()
        require(code == 143 and self.saved == self.step, "exit code 143 and a save", (code, self.last_lines()))
        self.causes.clear()  # the end that was asked for
        self.start("--resume")

    def launcher(self):
        self.job.process.kill()
        self.end()
        self.start("--resume")

    def faults(self):
        known = [self.kill, self.crash, self.pause, self.signals, self.save, self.record, self.terminate, self.launcher]
        if self.transport != "threads":
            known += [self.stop, self.starter, self.stop, self.kill]
        if self.machines:
            known += [self.machine, self.cable]
        return known

    def befall(self, fault):
        """Seconds from the fault to the first step that was not there before."""
        since = time.monotonic()
        self.causes.clear()
        self.begun.clear()
        restarts, shown = self.restarts, len(self.shown)
        expected = fault()
        if expected:
            self.wait(lambda: self.restarts > restarts, "a restart")
        before, saved = self.step, self.saved
        if expected or fault in (self.launcher, self.terminate):
            self.wait(lambda: self.begun, "a step to go on after")
            require(self.step <= before, "no step before it goes on", self.last_lines())
            require(saved <= self.begun[-1] <= before and before - self.begun[-1] <= 2 * SAVE_EVERY,
                    "the newest save, behind step %d and %d" % (saved, before), self.last_lines())
        self.newer_step(before)
        told = "".join(self.shown[shown:])
        require(len(self.causes) == self.restarts - restarts == bool(expected), "one report of each fault", told)
        require(not expected or re.search(expected, told), "as the cause " + str(expected), told)
        spent = time.monotonic() - since
        print("%s: %s at step %d: %.2f s%s" % (self.model + "_" + self.transport, fault.__name__, before, spent,
              ", goes on after %d" % self.begun[-1] if self.begun else ""), flush=True)
        return spent


def note_step(training, found):
    training.step = max(training.step, int(found.group(1)))


def note_save(training, found):
    training.saved = max(training.saved, int(found.group(1)))


def note_restart(training, _):
    training.restarts += 1


NOTES = [
    (r"step +(\d+)/", note_step),
    (r"saved step (\d+) to ", note_save),
    (r"goes on after step (\d+) of ", lambda training, found: training.begun.append(int(found.group(1)))),
    (r"strata: restart \d+ of ", note_restart),
    (r"strata: (?!restart )(.*)", lambda training, found: training.causes.append(found.group(1))),
]


def numbers(path):
    return {record["step"]: (record["loss"], record["grad_norm"]) for record in program.steps(path)}


def run_until(strata, model, step, *flags):
    """Losses and norms of a training that nothing befalls, until it has done `step` steps."""
    if os.path.exists(strata.path("other.jsonl")):
        os.remove(strata.path("other.jsonl"))
    job = strata.start("train", *MODELS[model], *GRID, "--transport=threads", "--log=other.jsonl", "--print_every=1",
                       *flags)
    for line in job.process.stdout:
        found = re.match(r"step +(\d+)/", line)
        if found and int(found.group(1)) >= step:
            break
    job.process.send_signal(signal.SIGINT)
    code, _, errors = job.end()
    require(code == 130, "the steps of a training", (code, errors))
    return numbers(strata.path("other.jsonl"))


def check_bits(training):
    """All that it told, and each save that it left, is of the training that nothing befell."""
    strata, beyond = training.strata, 3
    log = numbers(strata.path("log.jsonl"))
    require(sorted(log) == list(range(training.step)), "each step once", sorted(log)[-5:])
    whole = run_until(strata, training.model, training.step + beyond)
    wrong = [step for step in log if log[step] != whole[step]]
    require(not wrong, "the bits of the training that nothing befell", [(s, log[s], whole[s]) for s in wrong[:3]])
    shown = strata.run("inspect", "runs")
    saves = sorted(name for name in os.listdir(strata.path("runs")) if name.startswith("step-"))
    require(saves and len(saves) <= 3 and "whole" in shown, "whole saves", (saves, shown))
    for name in saves:
        step = int(re.match(r"step-(\d+)", name).group(1))  # behind a point: which one of that step
        after = run_until(strata, training.model, step + beyond, "--resume=runs/" + name)
        require(all(after[s] == whole[s] for s in range(step, step + beyond)), "step %d's exact state" % step, name)


def chaos(strata, setting, seed, seconds, gap):
    chance = random.Random("%d %s" % (seed, setting))
    with Training(strata, setting, chance) as training:
        if training is None:
            return 0, 0, 0
        training.newer_step(SAVE_EVERY)  # it may take a while to begin; nothing is lost before
        begin, lost, faults = time.monotonic(), 0, 0
        known = training.faults()
        order = chance.sample(known, len(known))  # all of them before one comes again
        while seconds is None and faults < GATE[setting] or seconds and time.monotonic() < begin + seconds:
            if seconds is None:
                training.newer_step(training.step + chance.randrange(5, 30))
            else:
                until = time.monotonic() + chance.expovariate(1 / gap)
                while time.monotonic() < min(until, begin + seconds):
                    training.take(timeout=0.1)
                if time.monotonic() >= begin + seconds:
                    break
            lost += training.befall(order[faults % len(order)])
            faults += 1
        total = time.monotonic() - begin
        training.job.process.send_signal(signal.SIGTERM)
        code = training.end()
        require(code == 143 and training.saved == training.step, "exit code 143 and a save",
                (code, training.last_lines()))
        check_bits(training)
    print("%s: %d faults in %.0f s, %d steps, %.1f %% of the time for new ones" % (
        setting, faults, total, training.step, 100 * (1 - lost / total)), flush=True)
    return lost, faults, total


# How many faults come in the gate.
GATE = {"digits_gloo": 4, "digits_threads": 2, "digits_hosts": 3}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("strata")
    parser.add_argument("models")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--gap", type=float, default=60)
    parser.add_argument("--only", action="append", choices=SETTINGS)
    options = parser.parse_args()
    settings = options.only or (SETTINGS if options.minutes else list(GATE))
    if not options.minutes and not GATE.keys() >= set(settings):
        parser.error("without --minutes: " + ", ".join(GATE))
    seconds = options.minutes and 60 * options.minutes / len(settings)
    lost = faults = total = 0
    for setting in settings:
        strata = program.Program(options.strata, options.models)
        sums = chaos(strata, setting, options.seed, seconds, options.gap)
        lost, faults, total = lost + sums[0], faults + sums[1], total + sums[2]
    if total:
        print("%d faults in %.0f s, %.1f %% of the time for new steps" % (faults, total, 100 * (1 - lost / total)))
    require(seconds is None or lost <= MOST_SECONDS * faults, "at most %g s a fault" % MOST_SECONDS, (lost, faults))
    require(seconds is None or lost <= MOST_LOST * total, "at most %g of the time lost" % MOST_LOST, (lost, total))


if __name__ == "__main__":
    main()
