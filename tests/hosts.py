#!/usr/bin/env python3
"""`strata train --hostfile`: a job over several machines, which here are namespaces of this one. The
ssh that it uses is a script of ours; everything behind it is real.

usage: hosts.py STRATA MODELS TEST...
"""

import itertools
import os
import re
import signal
import socket
import subprocess

import program
from program import require

# Two "hosts" that are this machine.
HERE = "shift\nexec \"$@\"\n"


def over_hosts(strata, ssh, hosts, slots=1):
    """The flags of a job over the hosts of a file, started by `ssh`, a shell script."""
    strata.write("hosts", "".join("%s slots=%d\n" % (host, slots) for host in hosts))
    os.chmod(strata.write("ssh", "#!/bin/sh\n" + ssh), 0o755)
    return ["--hostfile=hosts", "--ssh=" + strata.path("ssh")]


def train(strata, ssh, hosts, *flags, environment=None):
    return strata.start("train", "digits.lua", *over_hosts(strata, ssh, hosts), *flags, environment=environment)


def here(strata, *flags, **environment):
    return train(strata, HERE, ["host1", "host2"], "--master_addr=" + socket.gethostname(), *flags,
                 environment={"GLOO_SOCKET_IFNAME": "lo", **environment})


def trains(strata):
    code, out, errors = here(strata, "--steps=3", "--log_dir=logs").end()
    require(code == 0 and out.count("step 3/3") == 1, "a training", (code, out, errors))
    require("2 ranks on cpu, over gloo" in out, "two ranks", out)


def links(strata):
    """`strata doctor --links` over machines, and a training with what it wrote."""
    flags = over_hosts(strata, HERE, ["host1", "host2"]) + ["--master_addr=" + socket.gethostname()]
    job = strata.start("doctor", "--links", "--output=links.json", *flags, environment={"GLOO_SOCKET_IFNAME": "lo"})
    code, out, errors = job.end()
    require(code == 0 and "(rank 0)" in out and "over gloo" in out, "a table", (code, out, errors))
    code, out, errors = here(strata, "--steps=3", "--links=links.json").end()
    require(code == 0 and out.count("step 3/3") == 1, "a training", (code, out, errors))
    job = strata.start("doctor", "--links", "--ranks=2", *flags)
    code, _, errors = job.end()
    require(code == 2 and "--ranks and --hostfile" in errors, "a contradiction", (code, errors))


def a_killed_rank(strata):
    job = here(strata, "--steps=100000000", "--print_every=1")
    job.wait_for_steps()
    pids = job.pids()
    os.kill(pids["strata rank 1"][0], signal.SIGKILL)
    code, _, errors = job.end()
    require(code == 137 and "strata: rank 1 (stage 1) was ended by signal 9" in errors, "the cause", errors)
    job.expect_all_gone(pids)


def a_lost_host(strata):
    job = here(strata, "--steps=100000000", "--print_every=1")
    job.wait_for_steps()
    pids = job.pids()
    os.kill(max(pids["strata"]), signal.SIGKILL)  # the worker that began last
    code, _, errors = job.end()
    require(code == 1 and "strata: the connection to host" in errors, "the lost host", errors)
    job.expect_all_gone(pids)


def sigterm_saves(strata):
    """To the launcher alone, and to all processes, as a batch system sends it."""
    for to_all in (False, True):
        job = here(strata, "--steps=100000000", "--print_every=1", "--save.dir=saves_%d" % to_all)
        job.wait_for_steps()
        pids = job.pids()
        for pid in sum(pids.values(), []) if to_all else []:
            os.kill(pid, signal.SIGTERM)
        job.process.send_signal(signal.SIGTERM)
        code, out, errors = job.end()
        require(code == 143 and "ended by signal 15 (SIGTERM)" in errors, "the signal", (code, errors))
        require("saved step " in out, "a save", out)
        job.expect_all_gone(pids)


def flight_records(strata):
    """Of machines whose only rank was killed, or stands still and is killed at the end: what it did last."""
    for fault, code in [("KILL", 137), ("STOP", 1)]:
        job = here(strata, "--steps=100", "--log_dir=logs", "--hang_timeout=1", STRATA_FAULT="1:1B0:" + fault)
        ended, _, errors = job.end()
        require(ended == code, "exit code %d" % code, (ended, errors))
        told, ranks = strata.flight_of(errors)
        require(sorted(ranks) == ["0", "1"], "the ranks of both machines", told)
        require(re.search(r"^ *\S+ \S* +0 +1 +1B0 .*goes on", ranks["1"], re.M), "where rank 1 ended", told)


def a_killed_launcher(strata):
    job = here(strata, "--steps=100000000", "--print_every=1")
    job.wait_for_steps()
    pids = job.pids()
    require(len(pids.get("strata", [])) == 2, "two workers", pids)
    job.process.kill()
    job.process.wait()
    job.expect_all_gone(pids)


def an_unreachable_host(strata):
    job = train(strata, "[ $1 = host2 ] && { echo no route to $1 >&2; exit 255; }\n" + HERE,
                ["host1", "host2"], "--master_addr=" + socket.gethostname())
    code, _, errors = job.end()
    require(code == 1 and "the connection to host2 is lost" in errors and "code 255" in errors
            and "[host2] no route to host2" in errors, "the host and why", errors)


def a_host_that_comes_back(strata):
    """Its machine is lost, then away for two tries."""
    away = "if [ $1 = host2 ]; then echo >> calls; case $(wc -l < calls) in 2|3) echo away >&2; exit 255;; esac; fi\n"
    job = train(strata, away + HERE, ["host1", "host2"], "--master_addr=" + socket.gethostname(), "--max_restarts=5",
                "--steps=100000000", "--save.dir=runs", "--save.every=20",
                environment={"GLOO_SOCKET_IFNAME": "lo"})
    job.wait_for("^saved step")
    os.kill(max(job.pids()["strata"]), signal.SIGKILL)
    job.wait_for("^goes on after step")
    job.process.send_signal(signal.SIGTERM)
    code, _, errors = job.end()
    require(code == 143, "a training that was asked to end", (code, errors))
    for text in ["restart 1 of 5, from the last save\n", "the connection to host2 is lost",
                 "restart 2 of 5, from the last save, in 1.00 s\n", "restart 3 of 5, from the last save, in 2.00 s\n"]:
        require(text in errors, text, errors)


def a_wrong_script(strata):
    code, out, errors = here(strata, "--stepz=3").end()
    require(code == 2 and errors.count("there is no flag --stepz") == 1, "one error", errors)


IPTABLES = "/usr/sbin/iptables"  # which is on no path of Bazel's


class Namespaces:
    """Two network namespaces with a cable between them."""

    def __init__(self):
        self.names = ["strata-%d-%d" % (os.getpid(), i) for i in range(2)]
        self.addresses = ["10.77.0.1", "10.77.0.2"]

    def __enter__(self):
        ends = self.ends = ["s%d-%d" % (os.getpid(), i) for i in range(2)]
        for name in self.names:
            self.ip("netns", "add", name)
        self.ip("link", "add", ends[0], "type", "veth", "peer", "name", ends[1])
        for name, end, address in zip(self.names, ends, self.addresses):
            self.ip("link", "set", end, "netns", name)
            self.ip("-n", name, "addr", "add", address + "/24", "dev", end)
            self.ip("-n", name, "link", "set", end, "up")
            self.ip("-n", name, "link", "set", "lo", "up")
        return self

    def __exit__(self, *_):
        for name in self.names:
            if os.path.exists("/run/netns/" + name):
                subprocess.run(["ip", "netns", "del", name], stderr=subprocess.DEVNULL)

    @staticmethod
    def ip(*words):
        return subprocess.run(["ip", *words], check=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True).stdout

    def ssh(self):
        cases = "".join("%s) shift; exec ip netns exec %s \"$@\";;\n" % pair
                        for pair in zip(self.addresses, self.names))
        return "case $1 in\n%sesac\n" % cases

    def listeners(self):
        return "".join(subprocess.run(["ip", "netns", "exec", name, "ss", "-Hltnp"], check=True,
                                      stdout=subprocess.PIPE, text=True).stdout
                       for name in self.names)


def made_here(machines):
    """The machines, to be ended by the caller; None, with a line why, where the system makes none."""
    try:
        return machines.__enter__()
    except (OSError, subprocess.CalledProcessError) as error:
        machines.__exit__()
        program.skipped("no network namespaces here: %s" % (getattr(error, "stderr", None) or error))
        return None


def between_machines(test):
    """The test of two machines, which are gone afterwards."""
    def run(strata):
        machines = made_here(Namespaces())
        if machines:
            try:
                test(strata, machines)
            finally:
                machines.__exit__()
    return run


@between_machines
def namespaces(strata, machines):
    """Two machines that reach each other over a network of their own, and nothing else."""
    job = train(strata, machines.ssh(), machines.addresses, "--steps=100000000", "--print_every=1")
    job.wait_for_steps()
    table = machines.listeners().splitlines()
    listeners = [line.split()[3] for line in table]
    pids = job.pids()
    job.process.send_signal(signal.SIGINT)
    code, _, errors = job.end()
    require(code == 130, "exit code 130", (code, errors))
    job.expect_all_gone(pids)
    require(listeners and all(listener.startswith("10.77.0.") for listener in listeners),
            "listeners on the network between them alone", listeners)
    require(all(line.count("pid=") == 1 for line in table), "each held by one process alone", table)
    code, out, errors = train(strata, machines.ssh(), machines.addresses, "--steps=3").end()
    require(code == 0 and "step 3/3" in out, "a training", (code, out, errors))


def lose(machines, *which):
    """From now on each machine loses these packets. False, with a line why, where the system cannot do that."""
    try:
        for name in machines.names:
            machines.ip("netns", "exec", name, IPTABLES, "-A", "INPUT", *which, "-j", "DROP")
        return True
    except (OSError, subprocess.CalledProcessError) as error:
        program.skipped("no packets can be lost here (iptables): %s" % (getattr(error, "stderr", None) or error))
        return False


def has_lost(machines):
    """Whether a rule of lose() has met a packet: some kernels take rules that do nothing."""
    tables = [machines.ip("netns", "exec", name, IPTABLES, "-nvxL", "INPUT") for name in machines.names]
    if any(int(count) for table in tables for count in re.findall(r"^ *(\d+) +\d+ DROP", table, re.M)):
        return True
    program.skipped("the rules of iptables meet no packet here")
    return False


def expect_a_hang(job, pids):
    code, _, errors = job.end()
    require(code == 1 and re.search(r"rank \d \(.*waiting for rank \d", errors), "who waits for whom", (code, errors))
    job.expect_all_gone(pids)


@between_machines
def bad_networks(strata, machines):
    """Nothing comes through any more: the training ends on both sides."""
    job = train(strata, machines.ssh(), machines.addresses, "--steps=100000000", "--print_every=1", "--hang_timeout=3")
    job.wait_for("^step +10/")
    pids = job.pids()
    machines.ip("-n", machines.names[0], "link", "set", machines.ends[0], "down")
    expect_a_hang(job, pids)


@between_machines
def lost_messages(strata, machines):
    """Packets with something in them are lost, acknowledgements are not."""
    job = train(strata, machines.ssh(), machines.addresses, "--steps=100000000", "--print_every=1", "--hang_timeout=3")
    job.wait_for("^step +10/")
    pids = job.pids()
    if lose(machines, "-m", "length", "--length", "60:"):
        steps = sum(line.startswith("step ") for line in itertools.islice(job.process.stdout, 500))
        if steps < 500 or has_lost(machines):
            return expect_a_hang(job, pids)
    job.process.kill()
    job.end()
    job.expect_all_gone(pids)


@between_machines
def lossy_networks(strata, machines):
    """One packet in twenty is lost: the training goes on, with the same bits."""
    code, out, errors = train(strata, machines.ssh(), machines.addresses, "--steps=20", "--log=whole.jsonl").end()
    require(code == 0, "a training", (code, out, errors))
    if not lose(machines, "-m", "statistic", "--mode", "random", "--probability", "0.05"):
        return
    code, out, errors = train(strata, machines.ssh(), machines.addresses, "--steps=20", "--log=log.jsonl").end()
    require(code == 0 and "step 20/20" in out, "a training", (code, out, errors))
    if not has_lost(machines):
        return
    whole, log = (program.losses(strata.path(name)) for name in ("whole.jsonl", "log.jsonl"))
    require(log == whole, "the same bits", (log, whole))


if __name__ == "__main__":
    program.main(globals())
