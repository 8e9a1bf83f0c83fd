#!/usr/bin/env python3
"""`strata train --hostfile`: a job over several machines, which here are namespaces of this one. The
ssh that it uses is a script of ours; everything behind it is real.

usage: hosts.py STRATA MODELS TEST...
"""

import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import uuid

PATIENCE = 60_000  # ms; far above what anything takes


def require(condition, what, shown):
    if not condition:
        raise AssertionError("expected %s in:\n%s" % (what, shown))


class Job:
    """A training over the hosts of a file, started by `ssh`, a shell script."""

    def __init__(self, binary, models, ssh, hosts, *flags, environment=None):
        self.mark = "STRATA_TEST=" + uuid.uuid4().hex  # in every process of the job
        folder = tempfile.mkdtemp()
        self.write(folder, "hosts", "".join("%s slots=1\n" % host for host in hosts))
        self.write(folder, "ssh", "#!/bin/sh\n" + ssh)
        os.chmod(os.path.join(folder, "ssh"), 0o755)
        name, value = self.mark.split("=")
        self.process = subprocess.Popen(
            [os.path.abspath(binary), "train", os.path.join(os.path.abspath(models), "digits.lua"),
             "--hostfile=hosts", "--ssh=" + os.path.join(folder, "ssh"), *flags],
            cwd=folder, env=dict(os.environ, **(environment or {}), **{name: value}), text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    @staticmethod
    def write(folder, name, text):
        with open(os.path.join(folder, name), "w") as file:
            file.write(text)

    def wait_for_steps(self):
        for line in self.process.stdout:
            if line.startswith("step "):
                return
        raise AssertionError("no step: " + self.process.stderr.read())

    def pids(self):
        """The job's processes but the launcher, by name."""
        found = {}
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open("/proc/%s/environ" % pid, "rb") as file:
                    ours = self.mark.encode() in file.read().split(b"\0")
                with open("/proc/%s/comm" % pid) as file:
                    name = file.read().strip()
            except OSError:
                continue
            if ours and int(pid) != self.process.pid:
                found.setdefault(name, []).append(int(pid))
        return found

    def end(self):
        out, errors = self.process.communicate()
        return self.process.returncode, out, errors

    def expect_all_gone(self, pids):
        for pid in [pid for group in pids.values() for pid in group]:
            try:
                descriptor = os.pidfd_open(pid)
            except ProcessLookupError:
                continue
            poll = select.poll()
            poll.register(descriptor, select.POLLIN)
            require(poll.poll(PATIENCE), "the end of process %d" % pid, pids)
            os.close(descriptor)


# Two "hosts" that are this machine.
HERE = "shift\nexec \"$@\"\n"


def here(binary, models, *flags):
    return Job(binary, models, HERE, ["host1", "host2"], "--master_addr=" + socket.gethostname(),
               *flags, environment={"GLOO_SOCKET_IFNAME": "lo"})


def trains(binary, models):
    code, out, errors = here(binary, models, "--steps=3", "--log_dir=logs").end()
    require(code == 0 and out.count("step 3/3") == 1, "a training", (code, out, errors))
    require("2 ranks on cpu, over gloo" in out, "two ranks", out)


def a_killed_rank(binary, models):
    job = here(binary, models, "--steps=100000000", "--print_every=1")
    job.wait_for_steps()
    pids = job.pids()
    os.kill(pids["strata rank 1"][0], signal.SIGKILL)
    code, _, errors = job.end()
    require(code == 137 and "strata: rank 1 was ended by signal 9" in errors, "the cause", errors)
    job.expect_all_gone(pids)


def a_lost_host(binary, models):
    job = here(binary, models, "--steps=100000000", "--print_every=1")
    job.wait_for_steps()
    pids = job.pids()
    os.kill(max(pids["strata"]), signal.SIGKILL)  # the worker that began last
    code, _, errors = job.end()
    require(code == 1 and "strata: the connection to host" in errors, "the lost host", errors)
    job.expect_all_gone(pids)


def sigterm_saves(binary, models):
    job = here(binary, models, "--steps=100000000", "--print_every=1", "--save.dir=saves")
    job.wait_for_steps()
    pids = job.pids()
    job.process.send_signal(signal.SIGTERM)
    code, out, errors = job.end()
    require(code == 143 and "ended by signal 15 (SIGTERM)" in errors, "the signal", (code, errors))
    require("saved step " in out, "a save", out)
    job.expect_all_gone(pids)


def a_killed_launcher(binary, models):
    job = here(binary, models, "--steps=100000000", "--print_every=1")
    job.wait_for_steps()
    pids = job.pids()
    require(len(pids.get("strata", [])) == 2, "two workers", pids)
    job.process.kill()
    job.process.wait()
    job.expect_all_gone(pids)


def an_unreachable_host(binary, models):
    job = Job(binary, models, "[ $1 = host2 ] && { echo no route to $1 >&2; exit 255; }\n" + HERE,
              ["host1", "host2"], "--master_addr=" + socket.gethostname())
    code, _, errors = job.end()
    require(code == 1 and "the connection to host2 is lost" in errors and "code 255" in errors
            and "[host2] no route to host2" in errors, "the host and why", errors)


def a_wrong_script(binary, models):
    code, out, errors = here(binary, models, "--stepz=3").end()
    require(code == 2 and errors.count("there is no flag --stepz") == 1, "one error", errors)


class Namespaces:
    """Two network namespaces with a cable between them."""

    def __init__(self):
        self.names = ["strata-%d-%d" % (os.getpid(), i) for i in range(2)]
        self.addresses = ["10.77.0.1", "10.77.0.2"]

    def __enter__(self):
        ends = ["s%d-%d" % (os.getpid(), i) for i in range(2)]
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
            subprocess.run(["ip", "netns", "del", name], stderr=subprocess.DEVNULL)

    @staticmethod
    def ip(*words):
        subprocess.run(["ip", *words], check=True, stderr=subprocess.PIPE, text=True)

    def ssh(self):
        cases = "".join("%s) shift; exec ip netns exec %s \"$@\";;\n" % pair
                        for pair in zip(self.addresses, self.names))
        return "case $1 in\n%sesac\n" % cases

    def listeners(self):
        return "".join(subprocess.run(["ip", "netns", "exec", name, "ss", "-Hltn"], check=True,
                                      stdout=subprocess.PIPE, text=True).stdout
                       for name in self.names)


def namespaces(binary, models):
    """Two machines that reach each other over a network of their own, and nothing else."""
    try:
        machines = Namespaces().__enter__()
    except (OSError, subprocess.CalledProcessError) as error:
        print("skipped: no network namespaces here:", getattr(error, "stderr", None) or error)
        return
    try:
        job = Job(binary, models, machines.ssh(), machines.addresses, "--steps=100000000",
                  "--print_every=1")
        job.wait_for_steps()
        listeners = [line.split()[3] for line in machines.listeners().splitlines()]
        pids = job.pids()
        job.process.send_signal(signal.SIGINT)
        code, _, errors = job.end()
        require(code == 130, "exit code 130", (code, errors))
        job.expect_all_gone(pids)
        require(listeners and all(listener.startswith("10.77.0.") for listener in listeners),
                "listeners on the network between them alone", listeners)
        code, out, errors = Job(binary, models, machines.ssh(), machines.addresses,
                                "--steps=3").end()
        require(code == 0 and "step 3/3" in out, "a training", (code, out, errors))
    finally:
        machines.__exit__()


def main():
    for name in sys.argv[3:]:
        globals()[name](sys.argv[1], sys.argv[2])
        print("ok", name)


if __name__ == "__main__":
    main()
