#!/usr/bin/env python3
"""The log of a training in MLflow's own file store and in W&B's own offline file, sent by tools/python/follow.py.

usage: follow.py STRATA MODELS TEST...
"""

import importlib.util
import json
import os
import random
import re
import signal
import subprocess
import sys
import types

import program
from program import require

TRAIN = ["train", "digits.lua", "--pipe=2", "--log=log.jsonl", "--eval.every=5", "--eval.metrics=accuracy,f1",
         "--save.dir=runs", "--print_every=1"]


def prepare(strata):
    """The libraries' folders, and the follower as a module."""
    os.environ.update(MLFLOW_TRACKING_URI="file://" + strata.path("store"), MLFLOW_ALLOW_FILE_STORE="true",
                      MLFLOW_DISABLE_TELEMETRY="true", WANDB_MODE="offline", WANDB_DIR=strata.folder, WANDB_SILENT="true",
                      PYTHONDONTWRITEBYTECODE="1")
    strata.follower = os.path.join(strata.root, "tools/python/follow.py")
    spec = importlib.util.spec_from_file_location("follow_under_test", strata.follower)
    strata.follow = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(strata.follow)


def resumed_log(strata):
    """The log of a training of 60 steps that was resumed, with a loss that is not a number; how long it is."""
    strata.run(*TRAIN, "--steps=25")
    strata.run(*TRAIN, "--steps=60", "--resume")
    lines = strata.read("log.jsonl").splitlines(keepends=True)
    record = json.loads(lines[7])
    lines[7] = json.dumps(dict(record, loss="NaN", grad_norm="Infinity")) + "\n"
    return "".join(lines).encode()


def flat(values, head=""):
    for name, value in values.items():
        if isinstance(value, dict):
            yield from flat(value, head + name + "/")
        elif not isinstance(value, (list, bool)) and head + name not in ("step", "version"):
            yield head + name, repr(float(value))


def expected(lines):
    """{metric: [(step, number), ...]} of the log's records; of a step that comes twice the first."""
    found = {}
    for record in map(json.loads, lines):
        for name, value in [] if record.keys() & {"run", "end"} else flat(record):
            found.setdefault(name, {}).setdefault(record["step"], value)
    return {name: list(values.items()) for name, values in found.items()}


def stored(count=1):
    """The runs of MLflow's store, each as (its description, its metrics as expected() has them)."""
    client = program.package("mlflow").MlflowClient()
    experiment = client.get_experiment_by_name("strata").experiment_id
    runs = client.search_runs([experiment], "tags.`strata.log` LIKE '%'", order_by=["attributes.start_time"])
    require(len(runs) == count, "%d runs" % count, runs)
    return [(run, {name: [(point.step, repr(point.value)) for point in client.get_metric_history(run.info.run_id, name)]
                   for name in run.data.metrics}) for run in runs]


def same(found, wanted, what=""):
    for name in found.keys() | wanted.keys():
        require(found.get(name) == wanted.get(name), "%s of the log %s: %s" % (name, what, wanted.get(name)),
                found.get(name))


def once(strata, to, before=lambda: None):
    """A process of its own that sends what the log has; -9 where it was killed."""
    child = os.fork()
    if child == 0:
        before()
        sys.argv = [strata.follower, strata.path("growing.jsonl"), "--to=" + to, "--once"]
        os._exit(strata.follow.main())
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def killed_often(strata, log, to, most, before, kills=30):
    """The log grows by any number of bytes, and the follower dies after at most `most` writes; then both end."""
    chance, size = random.Random(5), 0
    for _ in range(kills):
        code = None
        while code != -signal.SIGKILL:
            require(code in (None, 0) and size < len(log), "%d kills" % kills, (code, size))
            size += chance.randrange(3 * len(log) // kills // 2)
            with open(strata.path("growing.jsonl"), "wb") as file:
                file.write(log[:size])
            left = chance.randrange(most)
            code = once(strata, to, lambda: before(left))
    print("%d kills up to byte %d of %d" % (kills, size, len(log)))
    with open(strata.path("growing.jsonl"), "wb") as file:
        file.write(log)
    require(once(strata, to) == 0, "an end", log[-100:])


def mlflow_kills(strata):
    if not program.package("mlflow"):
        return
    log = resumed_log(strata)

    def killed_by_a_write(left):
        """Before the store opens its file number `left` to write."""
        def hook(event, arguments):
            nonlocal left
            if event == "open" and str(arguments[0]).startswith(strata.path("store")) and arguments[2] & os.O_ACCMODE:
                left -= 1
                if left < 0:
                    os.kill(os.getpid(), signal.SIGKILL)
        sys.addaudithook(hook)

    killed_often(strata, log, "mlflow", 25, killed_by_a_write)
    (run, metrics), = stored()
    same(metrics, expected(log.splitlines()))
    require(run.info.status == "FINISHED" and run.info.run_name == "digits", "a finished run", run.info)
    wanted = {"steps": "25", "plan.pipe": "2", "job.optimizer.options.lr": "0.001", "job.batch.size": "64"}
    require(wanted.items() <= run.data.params.items(), wanted, run.data.params)
    require(not {"", "null", "[]"} & set(run.data.params.values()), "no empty parameters", run.data.params)


def mlflow_live(strata):
    """A training that is killed, and resumed from before where its log had come to."""
    if not program.package("mlflow"):
        return
    follower = subprocess.Popen([sys.executable, strata.follower, strata.path("log.jsonl"), "--to=mlflow"])
    job = strata.start(*TRAIN, "--save.every=4", "--steps=100000")
    job.wait_for(r"^step +11/")
    job.kill()
    strata.run(*TRAIN, "--steps=30", "--resume")
    require(follower.wait() == 0, "an end", strata.read("log.jsonl"))
    (run, metrics), = stored()
    lines = expected(strata.read("log.jsonl").splitlines())
    require(run.info.status == "FINISHED", "FINISHED", run.info)
    for name in ("loss", "grad_norm", "test_loss", "metrics/f1"):  # the same bits, whichever run sent them
        found = [point for point in metrics[name] if point[0] < 30]
        require([point for point in found if point in lines[name]] == lines[name], lines[name], found)
        require(len(dict(found)) == len(found), "each step once", found)


def mlflow_repeats(strata):
    """A log that is cut and grows beyond where it was read, ends, goes on, and then is another training's."""
    if not program.package("mlflow"):
        return

    def line(step, loss, **more):
        return json.dumps({"step": step, "loss": loss, "parts": {"a+b": step}, "seconds": 0.5, "grad_norms": many,
                           **more}) + "\n"

    many = {str(i): 1.0 for i in range(200)}  # more than a request may have
    head = json.dumps({"step": 0, "run": {"name": "one", "began": 100, "steps": 9, "job": many, "long": "x" * 9000}}) + "\n"
    follower = strata.follow.Follower(strata.write("log.jsonl", head + "".join(line(step, 1.0) for step in range(6))),
                                      "mlflow", None)
    require(not follower.poll(), "no end", head)
    again = head + "".join(line(step, 1.0 if step < 3 else 2.0, lr=1) for step in range(9))
    strata.write("log.jsonl", again)
    require(not follower.poll(), "no end", again)
    strata.write("log.jsonl", again + line(9, 3.0)[:20])
    require(not follower.poll(), "no end", again)
    end = json.dumps({"step": 10, "end": "failed"}) + "\n"
    strata.write("log.jsonl", again + line(9, 3.0) + end)
    require(follower.poll(), "an end", end)
    (run, metrics), = stored()
    require([float(loss) for _, loss in metrics["loss"]] == [1.0] * 6 + [2.0] * 3 + [3.0], "what was first", metrics)
    require([step for step, _ in metrics["parts/a_b"]] == list(range(10)), "a name for MLflow", metrics)
    require(run.info.status == "FAILED" and run.info.start_time == 100_000, "the failed run", run.info)
    require(len(run.data.params) == 204, "all parameters", run.data.params)
    times = [point.timestamp for point in program.package("mlflow").MlflowClient().get_metric_history(
        run.info.run_id, "loss")]
    require(times[:3] + times[-1:] == [100_500, 101_000, 101_500, 105_000], "the time of each step", times)
    strata.write("log.jsonl", again + line(9, 3.0) + line(10, 4.0))
    later = strata.follow.Follower(strata.path("log.jsonl"), "mlflow", None)  # the first still exists
    require(not later.poll(), "no end", again)
    (run, metrics), = stored()
    require((run.info.status, len(metrics["loss"])) == ("RUNNING", 11), "a run that goes on", run)
    other = head.replace("one", "two")
    strata.write("log.jsonl", other + line(0, 7.0))
    follower = strata.follow.Follower(strata.path("log.jsonl"), "mlflow", None)
    require(not follower.poll(), "no end", other)
    strata.write("log.jsonl", head.replace("one", "three") + line(0, 8.0) + end.replace("failed", "done"))
    require(follower.poll(), "an end", end)
    states = {run.info.run_name: (run.info.status, metrics["loss"]) for run, metrics in stored(3)}
    require(states["two"] == ("KILLED", [(0, "7.0")]) and states["three"] == ("FINISHED", [(0, "8.0")]), "runs", states)


def records_of(path):
    """The records of LevelDB's log format: blocks of 32 KiB, each record with its sum, length and kind."""
    with open(path, "rb") as file:
        data = file.read()
    at, record = 7, b""
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        size, kind = int.from_bytes(data[at + 4:at + 6], "little"), data[at + 6]
        record += data[at + 7:at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # whole, or the last part
            yield record
            record = b""


def wandb_offline(strata):
    """The file that `wandb sync` sends later; where there is one already, nothing is sent twice."""
    if not program.package("wandb"):
        return
    log = resumed_log(strata)
    with open(strata.path("growing.jsonl"), "wb") as file:
        file.write(log)
    line = [sys.executable, strata.follower, strata.path("growing.jsonl"), "--to=wandb"]
    subprocess.run(line, check=True)
    (folder,) = [entry for entry in os.scandir(strata.path("wandb")) if entry.name.startswith("offline-run-")]
    (path,) = [entry.path for entry in os.scandir(folder.path) if entry.name.endswith(".wandb")]
    record_type = program.package("wandb.proto.wandb_internal_pb2").Record
    found, config, codes = {}, "", []
    for record in map(record_type.FromString, records_of(path)):
        if record.HasField("history"):
            row = {(item.key or "/".join(item.nested_key)): json.loads(item.value_json) for item in record.history.item}
            for name, value in row.items():
                if not name.startswith("_"):
                    found.setdefault(name, []).append((row["_step"], repr(float(value))))
        if record.HasField("run"):
            config += str(record.run)
        if record.HasField("exit"):
            codes.append(record.exit.exit_code)
    same(found, expected(log.splitlines()))
    require("optimizer" in config and codes == [0], "the job and exit code 0", (config, codes))
    again = subprocess.run(line, capture_output=True, text=True)
    require(again.returncode == 1 and "remove " + folder.path in again.stderr, "a refusal", again.stderr)


class Backend:
    """In the place of wandb: what its server does with a run that is resumed. `before` may kill at a row."""

    def __init__(self, path, before):
        self.path, self.before = path, before
        self.settings = types.SimpleNamespace(mode="online", wandb_dir="none")

    def setup(self):
        return types.SimpleNamespace(settings=self.settings)

    def Settings(self, console, disable_git, save_code):
        return None

    def init(self, project, id, name, config, resume, reinit, settings):
        require((project, resume, len(id)) == ("strata", "allow", 16), "a run that is resumed", (project, resume, id))
        self.pending = None
        return self

    @property
    def starting_step(self):
        rows = program.records(self.path) if os.path.exists(self.path) else []
        return rows[-1]["step"] + 1 if rows else 0

    def log(self, row, step):
        self.before()
        require(step >= self.starting_step, "a later step", (step, self.starting_step))
        with open(self.path, "a") as file:
            file.write(json.dumps({"step": step, **row}) + "\n")

    def finish(self, exit_code=None):
        if exit_code is not None:
            with open(self.path + ".exit", "a") as file:
                file.write("%d\n" % exit_code)


def wandb_kills(strata):
    log = resumed_log(strata)
    path = strata.path("rows.jsonl")

    def backend(left=None):
        def before():
            nonlocal left
            left = None if left is None else left - 1
            if left == -1:
                os.kill(os.getpid(), signal.SIGKILL)
        sys.modules["wandb"] = Backend(path, before)

    backend()
    evaluated = log.index(b'{"step":4,"test_loss"')
    with open(strata.path("growing.jsonl"), "wb") as file:
        file.write(log[:evaluated])
    require(once(strata, "wandb") == 0, "no end", log[:evaluated])
    rows = [row["step"] for row in program.records(path)]
    require(rows == [0, 1, 2, 3], "rows that are whole", rows)
    killed_often(strata, log, "wandb", 2, backend)
    same(expected(strata.read("rows.jsonl").splitlines()), expected(log.splitlines()))
    rows = [row["step"] for row in program.records(path)]
    require(rows == list(range(60)) and strata.read("rows.jsonl.exit") == "0\n", "each step once, and an end", rows)


def wrong(strata):
    def says(text, *arguments, **environment):
        ran = subprocess.run([sys.executable, "-I", strata.follower, *arguments], capture_output=True, text=True,
                             cwd=strata.folder)
        require(ran.returncode == 1 and text in ran.stderr, text, (ran.returncode, ran.stderr))

    line = json.dumps({"step": 0, "loss": 1, "version": 1}) + "\n"
    strata.write("good", line)
    says("error: --to=mlflow needs its library: pip install mlflow-skinny", "good", "--to=mlflow", "--once")
    says("error: --to=wandb needs its library: pip install wandb", "good", "--to=wandb", "--once")
    says("No such file", "none", "--to=wandb", "--once")
    strata.write("torn", line[:-1])
    ran = subprocess.run([sys.executable, "-I", strata.follower, strata.path("torn"), "--to=wandb", "--once"])
    require(ran.returncode == 0, "no line to send", ran)
    for text, bad in [("bad:1: the log has version 2, this program reads up to 1", line.replace('n": 1', 'n": 2')),
                      ("bad:1: expected a record of a training's log, got b'{}", "{}\n"),
                      ("bad:1: expected a record", "[]\n"), ("bad:1: expected a record", "\0\n")]:
        strata.write("bad", bad)
        says(text, "bad", "--to=wandb", "--once")
    if program.package("mlflow"):
        ran = subprocess.run([sys.executable, strata.follower, strata.path("good"), "--to=mlflow", "--once"],
                             env=dict(os.environ, MLFLOW_TRACKING_URI="nowhere://"), capture_output=True, text=True)
        require(ran.returncode == 1 and re.search("^error: mlflow: .*nowhere", ran.stderr, re.M), "their error", ran)
    sys.modules["wandb"] = Backend(strata.path("rows"), lambda: None)
    first, second = (strata.follow.Follower(strata.path("good"), "wandb", None) for _ in range(2))
    first.poll()
    try:
        second.poll()
        raise AssertionError("two followers of one log")
    except strata.follow.FollowError as error:
        require("another process sends" in str(error), "a refusal", error)


if __name__ == "__main__":
    program.main(globals(), prepare)
