"""What tools/bench measures: Strata's ways and the peers' on the same work, and how each is run."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time

import wheels

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
_PEERS = ROOT / "tools/peers"
_STRATA = ROOT / "bazel-bin/launcher/strata"


# Seconds for reading the last lines of a command that has ended.
_LAST_LINES = 5


class Measured:
    """Seconds of steps, the memory of the largest process, and the seconds that were predicted."""

    def __init__(self, seconds, memory, predicted=None):
        self.seconds, self.memory, self.predicted = seconds, memory, predicted


# Running

def run(command, environment=None, until=None):
    """Runs a command; the memory of the largest of its processes (bytes), what it wrote, and the seconds
    until a line matched `until`. What it leaves running, and may hold its output, is not waited for.

    The kernel counts a process's largest descendant with it when its parents wait for it, as Strata's
    launcher and torch's do.
    """
    start, seen, text = time.perf_counter(), None, []
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def read():
        nonlocal seen
        with process.stdout:
            for line in process.stdout:
                text.append(line)
                if until and seen is None and re.search(until, line):
                    seen = time.perf_counter() - start

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    reader.join(_LAST_LINES)
    text = "".join(text)
    if process.returncode:
        raise wheels.SetupError(f"{' '.join(command)} ended with {process.returncode}:\n{text[-3000:]}")
    if until and seen is None:
        raise wheels.SetupError(f"{' '.join(command)} wrote no line like {until}:\n{text[-3000:]}")
    return 1024 * usage.ru_maxrss, text, seen


def step_seconds(log):
    """Of the records of a log; the first step warms up."""
    records = [json.loads(line) for line in log.splitlines()]
    seconds = [record["seconds"] for record in records if "seconds" in record]
    if len(seconds) < 2:
        raise wheels.SetupError(f"strata logged {len(seconds)} steps")
    return seconds[1:]


def peer_seconds(output):
    found = re.findall(r'^\{"seconds".*\}$', output, re.MULTILINE)
    if len(found) != 1:
        raise wheels.SetupError("the peer printed no result:\n" + output[-2000:])
    return json.loads(found[0])["seconds"]


def predicted_seconds(output):
    """What Strata's first lines say of a step ("1 min 05 s"); None where they predict nothing."""
    found = re.search(r"predicted step ((?:[\d.,]+ (?:h|min|s|ms|us)\b ?)+)", output)
    scale = {"h": 3600, "min": 60, "s": 1, "ms": 1e-3, "us": 1e-6}
    parts = re.findall(r"([\d.,]+) (\w+)", found[1]) if found else []
    return sum(float(number.replace(",", "")) * scale[unit] for number, unit in parts) if parts else None


# The competitors

class Strata:
    """`strata train` with some flags. `kind`: "best" by hand, "no flags", "other"; `group`: what of a
    workload is compared with each other."""

    def __init__(self, title, script, *flags, kind="other", group=""):
        self.title, self.command = f"Strata, {title}", ["train", script, *flags]
        self.kind, self.group = kind, group

    def measure(self, steps):
        with tempfile.TemporaryDirectory() as folder:
            log = pathlib.Path(folder) / "log"
            flags = [f"--steps={steps + 1}", f"--log={log}", "--print_every=1000000"]
            memory, output, _ = run([str(_STRATA), *self.command, *flags])
            return Measured(step_seconds(log.read_text()), memory, predicted_seconds(output))

    def line(self):
        return " ".join(["tools/strata", *self.command])


class StrataStart(Strata):
    """From the command to the line of the first step."""

    def measure(self, steps):
        memory, _, seconds = run([str(_STRATA), *self.command, f"--steps={steps}"], until=r"^step +1/")
        return Measured([seconds], memory)


class Peer:
    """tools/peers/peer.py under torch.distributed.run. `kind`: "torch", "torch, our cut", ..."""

    until = None

    def __init__(self, title, *arguments, ranks=2, kind="torch", group=""):
        self.title, self.arguments, self.ranks = title, arguments, ranks
        self.kind, self.group = kind, group

    def measure(self, steps):
        folder = peers_folder()
        threads = max(1, os.cpu_count() // self.ranks)
        environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONNOUSERSITE": "1",
                       "PATH": f"{folder}/bin:{os.environ['PATH']}", "DS_ACCELERATOR": "cpu",
                       "OMP_NUM_THREADS": str(threads)}
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone",
                   f"--nproc_per_node={self.ranks}", str(_PEERS / "peer.py"), *self.arguments,
                   f"--steps={steps}"]
        memory, output, seen = run(command, environment, self.until)
        return Measured([seen] if self.until else peer_seconds(output), memory)

    def line(self):
        return " ".join(["peer.py", *self.arguments])


class PeerStart(Peer):
    until = r'^\{"first"'


class Workload:
    def __init__(self, ours, theirs, steps, per_action=0):
        self.ours, self.theirs, self.steps, self.per_action = ours, theirs, steps, per_action


def ways(script, *flags, best=None):
    """Of one script: the best known way by hand, no flag, and what was the default once."""
    ours = [Strata("no flags", script, *flags, kind="no flags")]
    if best:
        ours.insert(0, Strata(f"cuts {best}, zb_h1", script, *flags, f"--partition={best}",
                              "--schedule=zb_h1", kind="best"))
    return ours + [Strata("partition parameters, 1f1b", script, *flags, "--partition=parameters",
                          "--schedule=1f1b")]


def pipelines(model, our_cut):
    """torch.distributed.pipelining, with the cut by parameters, with ours, and with the one that is best
    for it: the cut where its own layers, measured in its own process, are balanced."""
    title, rows = "torch.distributed.pipelining", []
    for cut, words, kind in [(None, "", "torch"), (our_cut, ", our cut", "torch, our cut"),
                             ("time", ", its best cut", "torch, its best cut")]:
        flags = [f"--cut={cut}"] if cut else []
        rows += [Peer(f"{title}, {name}{words}", "torch", f"--model={model}", f"--variant={variant}",
                      *flags, kind=kind) for name, variant in [("GPipe", "gpipe"), ("1F1B", "1f1b")]]
    return rows


def one(model):
    return Peer("PyTorch, one process, both cores", "one", f"--model={model}", ranks=1, kind="one process")


def deepspeed(model):
    return [Peer(f"DeepSpeed, {method}", "deepspeed", f"--model={model}", f"--variant={method}",
                 kind="DeepSpeed") for method in ("parameters", "uniform")]


def replicas(model, script, rows):
    """Two replicas of one micro-batch each."""
    flags = ["--pipe=1", "--data=2", "--micro_batches=1", f"--micro_batch_size={rows}"]
    return (Strata(f"{model}, 2 replicas", script, *flags, kind="no flags", group=model),
            Peer(f"DistributedDataParallel, {model}", "ddp", f"--model={model}", kind="DDP", group=model))


_GPT = ["models/gpt2.lua", "--vocab=10000", "--seq=128", "--dim=512", "--heads=8", "--depth=8"]
_RESNET = ["models/resnet.lua", "--stem=cifar", "--pixels=32", "--classes=10"]


def data():
    pairs = [replicas("alexnet", "models/alexnet.lua", 16), replicas("transformer", "models/transformer.lua", 16)]
    return Workload([pair[0] for pair in pairs], [pair[1] for pair in pairs], 5)


def tensor():
    flags = ["--pipe=1", "--model=2", "--micro_batches=1", "--micro_batch_size=8"]
    return Workload([Strata("model 2", *_GPT, *flags, kind="no flags")],
                    [Peer("torch.distributed.tensor.parallel", "tensor", "--model=gpt", kind="tensor parallel")], 5)


def start():
    script = "tools/peers/start.lua"
    grids = [(2, 1), (8, 1), (64, 1), (8, 8), (1, 64)]
    ours = [StrataStart(f"pipe {pipe} x data {data}", script, f"--pipe={pipe}", f"--data={data}",
                        f"--layers={pipe}", kind="no flags", group=f"pipe {pipe} x data {data}")
            for pipe, data in grids]
    return Workload(ours, [PeerStart(f"torchrun and torch.distributed.pipelining, {ranks} ranks", "torch",
                                     "--model=start", "--variant=gpipe", ranks=ranks, group=f"pipe {ranks} x data 1")
                           for ranks in (2, 8)], 1)


def empty():
    script, rows = "tools/peers/empty.lua", []
    for transport, schedule in [("gloo", "1f1b"), ("gloo", "gpipe"), ("threads", "1f1b"), ("threads", "gpipe")]:
        rows.append(Strata(f"{transport}, {schedule}", script, f"--transport={transport}",
                           f"--schedule={schedule}"))
    rows.append(Strata("no flags", script, kind="no flags"))
    # A step is a forward and a backward of 256 micro-batches on each of two ranks.
    return Workload(rows, [Peer("torch.distributed.pipelining, 1F1B", "torch", "--model=empty", "--variant=1f1b"),
                           Peer("torch.distributed.pipelining, GPipe", "torch", "--model=empty", "--variant=gpipe")],
                    30, per_action=2 * 256)


WORKLOADS = {
    "alexnet": lambda: Workload(ways("models/alexnet.lua", best="0,8,22"),
                                [*pipelines("alexnet", 8), *deepspeed("alexnet"), one("alexnet")], 6),
    "transformer": lambda: Workload(ways("models/transformer.lua", "--micro_batches=4", best="0,6,11"),
                                    [*pipelines("transformer", 6), one("transformer")], 5),
    "gpt": lambda: Workload(ways(*_GPT, "--pipe=2", best="0,13,21"), [*pipelines("gpt", 13), one("gpt")], 5),
    "resnet": lambda: Workload(ways(*_RESNET, "--pipe=2", best="0,47,85"), [*pipelines("resnet", 7), one("resnet")], 5),
    "data": data,
    "tensor": tensor,
    "start": start,
    "empty": empty,
}


# The peers' Python packages

def peers_folder():
    """Where they are, installed if they are missing. They share the libraries of tools/libtorch."""
    own = {name: value for name, value in os.environ.items() if name != "LIBTORCH"}
    torch = pathlib.Path(subprocess.run([ROOT / "tools/libtorch"], env=own, check=True,
                                        stdout=subprocess.PIPE, text=True).stdout.strip())
    pin = [wheels.pin_of(ROOT / "tools/pins/wheels.txt", "torch")]
    pins = wheels.read_pins(_PEERS / "requirements.txt")
    folder = wheels.cache() / f"peers-{wheels.digest(pin + pins)}"
    wheels.make_once(folder, lambda partial: install(pin, pins, torch, partial))
    return folder


def install(pin, pins, torch, folder):
    shutil.rmtree(folder, ignore_errors=True)
    wheels.unpack(pin, folder, lambda path: not re.match(r"torch/(lib|include)/", path), "torch")
    (folder / "torch/lib").symlink_to(torch / "lib")
    (folder / "nvidia").symlink_to(torch.parent / "nvidia")
    source = [pin for pin in pins if pin.startswith("deepspeed==")]
    pip(folder, [pin for pin in pins if pin not in source], "--only-binary=:all:")
    pip(folder, source, "--no-build-isolation")


def pip(folder, pins, *options):
    """Installs pinned packages; pip checks their hashes."""
    requirements = folder / "requirements.txt"
    requirements.write_text("\n".join(pins) + "\n")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes",
               "--disable-pip-version-check", "--no-warn-script-location", f"--target={folder}", "--upgrade",
               f"--requirement={requirements}", *options]
    result = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True,
                            env={**os.environ, "PYTHONPATH": str(folder), "DS_ACCELERATOR": "cpu",
                                 "DS_BUILD_OPS": "0"})
    if result.returncode:
        raise wheels.SetupError(f"pip could not install the peers\n{result.stdout.strip()}")
