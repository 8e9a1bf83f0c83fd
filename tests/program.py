"""The program under test, for the tests beside this file: started in an empty folder of its own, as
its users start it."""

import importlib
import json
import os
import random
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import uuid

PATIENCE = 60_000  # ms; far above what anything takes

# A shell's background jobs ignore them, and so would all that is started here.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)


def require(condition, what, shown):
    if not condition:
        raise AssertionError("expected %s in:\n%s" % (what, shown))


def require_texts(shown, says=(), lacks=(), source=""):
    """All texts and compiled patterns of `says` are in a text, and none of `lacks`. Each of both is a list, or one."""
    for wanted, texts in [(True, says), (False, lacks)]:
        for text in [texts] if isinstance(texts, (str, re.Pattern)) else texts:
            found = text in shown if isinstance(text, str) else bool(text.search(shown))
            require(found == wanted, "%r" % text if wanted else "no %r" % text, source + ":\n" + shown)


def skipped(why):
    """Says that a part of the test is left out; tools/test lists these lines."""
    print("skipped:", why, flush=True)


def package(name):
    """A module of the packages that tools/readers installs; None, and said, where they are not here."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        return skipped("%s (tools/readers says why)" % error)


def free_port():
    """A port for those who must be told one. The kernel gives none of this range to anybody: one that
    it has given may be another program's as soon as it is let go."""
    with open("/proc/sys/net/ipv4/ip_local_port_range") as file:
        first_given = int(file.read().split()[0])
    while True:
        port = random.randrange(first_given // 2, first_given)
        with socket.socket() as listener:
            try:
                listener.bind(("127.0.0.1", port))
                return str(port)
            except OSError:
                pass


def torchrun_ranks(world_size, ranks=None):
    """What torchrun has in the environment of each rank of a job on this machine."""
    port = free_port()
    return [{"RANK": str(rank), "WORLD_SIZE": str(world_size), "LOCAL_RANK": str(rank),
             "LOCAL_WORLD_SIZE": str(world_size), "MASTER_ADDR": "localhost", "MASTER_PORT": port}
            for rank in ranks or range(world_size)]


class Program:
    def __init__(self, binary, models):
        self.binary = os.path.abspath(binary)
        self.root = os.path.dirname(os.path.dirname(self.binary))  # of the checkout, as Bazel shows it
        self.models = os.path.abspath(models)
        self._temporary = tempfile.TemporaryDirectory()  # gone with this object, or the test
        self.folder = self._temporary.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, text):
        """Makes a file in the program's folder and returns its path."""
        with open(self.path(name), "w") as file:
            file.write(text)
        return self.path(name)

    def read(self, name):
        with open(self.path(name), encoding="utf-8") as file:
            return file.read()

    def json(self, name):
        return json.loads(self.read(name))

    def own_cache(self, name="cache"):
        """A folder for $STRATA_CACHE with the datasets, and with nothing that other tests measured."""
        os.mkdir(self.path(name))
        os.symlink(os.path.join(os.environ["STRATA_CACHE"], "data"), os.path.join(self.path(name), "data"))
        return self.path(name)

    def start(self, *arguments, environment=None, before=(), **options):
        """`BEFORE strata ARGUMENTS`; the name of a model's file stands for its path."""
        line = [*before, self.binary, *(self._model(argument) for argument in arguments)]
        return Job(line, dict(os.environ, **(environment or {})), cwd=self.folder, **options)

    def run(self, *arguments, code=0, stdin="", says=(), lacks=(), **options):
        """What `strata ARGUMENTS` writes to its standard output, then error, once it has ended: all texts and compiled
        patterns of `says`, and none of `lacks`. Each of both is a list, or one text."""
        job = self.start(*arguments, stdin=subprocess.PIPE, **options)
        ended, out, errors = job.end(stdin)
        if ended != code:
            raise AssertionError("strata %s\nexit code %d, expected %d\n%s%s" % (
                " ".join(arguments), ended, code, out, errors))
        require_texts(out + errors, says, lacks, " of strata " + " ".join(arguments))
        return out + errors

    def plan(self, *arguments, **options):
        """What `strata plan ARGUMENTS --json` writes, without what it says of its progress behind that."""
        return json.JSONDecoder().raw_decode(self.run("plan", *arguments, "--json", **options))[0]

    def verifies(self, *arguments, equal="equal bit for bit"):
        """`strata verify ARGUMENTS` finds what one stage computes."""
        self.run("verify", *arguments, says=equal)

    def flight_of(self, shown):
        """What `strata inspect` says of the flight record that a text names, and that by rank."""
        path = re.search(r"flight record of all ranks: (\S+) ", shown).group(1)
        told = self.run("inspect", path, "--events=1000")
        head = r"^rank (\d+)((?: \([^)]*\))?: [\d,]+ events?\n.*?)"
        end = r"(?=^rank \d+(?: \([^)]*\))?: [\d,]+ event|\Z)"
        return told, dict(re.findall(head + end, told, re.M | re.S))

    def _model(self, argument):
        path = os.path.join(self.models, argument)
        is_model = argument.endswith(".lua") and "/" not in argument and os.path.exists(path)
        return path if is_model else argument


class Job:
    """The program as it runs, with all processes that come of it."""

    def __init__(self, line, environment, stdin=subprocess.DEVNULL, **options):
        self.mark = "STRATA_TEST=" + uuid.uuid4().hex  # in every process of the job
        name, value = self.mark.split("=")
        environment[name] = value
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
        self.process = subprocess.Popen(line, env=environment, text=True, stdin=stdin, **options)

    def wait_for(self, pattern):
        """Reads up to a line of standard output that fits; what was read."""
        shown = ""
        for line in self.process.stdout:
            shown += line
            if re.search(pattern, line):
                return shown
        raise AssertionError("expected %r in:\n%s%s" % (pattern, shown, self.end()[2]))

    def wait_for_steps(self):
        return self.wait_for("^step ")

    def end(self, stdin=None):
        """Exit code, standard output from here on, standard error."""
        out, errors = self.process.communicate(stdin)
        return self.process.returncode, out, errors or ""

    def pids(self):
        """The job's processes but the first, by name."""
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

    def kill(self):
        """kill -9 for all processes; returns once they are gone, and what they had open or locked is free."""
        for _ in range(2):  # one that was started meanwhile is in the second list
            pids = dict(self.pids(), launcher=[self.process.pid])
            for pid in [pid for group in pids.values() for pid in group]:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            self.expect_all_gone(pids)

    @staticmethod
    def expect_all_gone(pids):
        for pid in [pid for group in pids.values() for pid in group]:
            try:
                descriptor = os.pidfd_open(pid)
            except ProcessLookupError:
                continue
            poll = select.poll()
            poll.register(descriptor, select.POLLIN)
            require(poll.poll(PATIENCE), "the end of process %d" % pid, pids)
            os.close(descriptor)


def records(path):
    """A file of JSON lines."""
    with open(path) as file:
        return [json.loads(line) for line in file]


def steps(path):
    """The steps' records of a log."""
    return [record for record in records(path) if "grad_norm" in record]


def losses(path):
    """The loss and norm of each step of a log, which has each once."""
    records = steps(path)
    require([record["step"] for record in records] == list(range(len(records))), "each step once, in order",
            [record["step"] for record in records])
    return [(record["loss"], record["grad_norm"]) for record in records]


def read_tensors(path):
    """{name: (dtype, shape, bytes)} of a safetensors file: what the format's description says, and no more."""
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        data = file.read()
    header.pop("__metadata__", None)
    return {name: (entry["dtype"], entry["shape"], data[slice(*entry["data_offsets"])])
            for name, entry in header.items()}


def code_lines(text, comment):
    """How many lines have code: comments, documentation and empty lines do not count."""
    text = re.sub(r'^""".*?"""', "", text, flags=re.DOTALL)
    return sum(1 for line in text.splitlines() if line.strip() and not line.strip().startswith(comment))


def stat(process):
    """The state of a process, or of "PID/task/THREAD", its parent's number, and what else the kernel tells of it."""
    with open("/proc/%s/stat" % process) as file:
        return file.read().rpartition(") ")[2].split()


def main(tests, prepare=None):
    """FILE.py STRATA MODELS TEST...: runs these functions of `tests`, each with a new program that
    `prepare` has seen; TEST=NUMBER gives it the number as well. Of a class, which its program prepares once, all
    methods run in their order, each a test of one behaviour that its name says; those with _ in front help them."""
    for argument in sys.argv[3:]:
        name, _, number = argument.partition("=")
        strata = Program(sys.argv[1], sys.argv[2])
        if prepare:
            prepare(strata)
        group = tests[name](strata, *([int(number)] if number else []))
        for method, value in vars(tests[name]).items():
            if callable(value) and not method.startswith("_"):
                print(name, method, flush=True)
                value(group)
        print("ok", argument)
