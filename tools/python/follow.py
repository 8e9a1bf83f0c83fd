"""Sends the log of a training (strata train --log=LOG) to MLflow or to Weights & Biases, while it grows.

usage: python -m strata.follow LOG... --to=mlflow|wandb [--project=NAME] [--once]

It follows each log until the training has ended; with --once it sends what is there and does not wait. A log without
its last line, `end`, belongs to a training that still runs or was killed: it is followed until the training is resumed
and ends. A last line that is not whole waits for its rest.

Each log is one run, whatever the number of ranks: only one process writes the log, and a resumed training continues
it. The run is found again by its log's first line, so a follower that was killed goes on where it was, and no step is
sent twice. A step that a resumed training repeats keeps the values that were sent first. A training that begins anew
in the same file is a new run.

sent        from the log
metrics     every number under its name; those in an object as object/name: loss, lr, test_loss, parts/bce, metrics/f1.
            Not a number and infinity are sent as such. Lists, texts and histograms stay in the log.
parameters  the first line, `run`, by dotted names: steps, plan.pipe, job.optimizer.options.lr. MLflow cannot change
            them, so they stay as they were when the training began. Empty ones are left out.
name, tags  the job's name; in MLflow strata.log, the log's path, and strata.training, which names its first line
state       done: FINISHED; stopped: KILLED (exit code 143); failed: FAILED (exit code 1)
time        MLflow's timestamps are when the training did the step

--project is MLflow's experiment or W&B's project; without it $MLFLOW_EXPERIMENT_NAME or $WANDB_PROJECT counts, then
"strata". Servers and keys are set as their libraries say ($MLFLOW_TRACKING_URI, `wandb login`); the libraries are the
user's own: mlflow or mlflow-skinny, wandb 0.20 or later. W&B takes a row once for each step, so the newest step waits
until the log has a later one or the end. W&B in offline mode cannot say what it has: there a log is sent as a whole.
"""

import argparse
import contextlib
import hashlib
import importlib
import json
import os
import re
import signal
import socket
import sys
import time

SECONDS = 0.5  # between two looks at the log
VERSION = 1  # of the log's lines
STATES = {"done": ("FINISHED", 0), "stopped": ("KILLED", 143), "failed": ("FAILED", 1)}  # of MLflow, W&B's exit code


class FollowError(Exception):
    """The log cannot be followed; the text says why."""


def library(name, install):
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise FollowError("--to=%s needs its library: pip install %s (%s)" % (name, install, error))


def numbers(values, head=""):
    """(name, number) of each number in the values, those of inner objects too."""
    for name, value in values.items():
        if isinstance(value, dict):
            yield from numbers(value, head + name + "/")
        elif value in ("NaN", "Infinity", "-Infinity") or type(value) in (int, float):
            yield head + name, float(value)


def parameters(values, head=""):
    """(dotted name, text) of each value that is not empty."""
    for name, value in values.items():
        if isinstance(value, dict):
            yield from parameters(value, head + name + ".")
        elif value not in ("", None, []):
            yield head + name, value if isinstance(value, str) else json.dumps(value)


class Lines:
    """The whole lines of a growing file, which a resumed training may cut."""

    def __init__(self, path):
        self.path = path
        self._begin()

    def _begin(self):
        self._offset, self._count, self._last = 0, 0, b""

    def new(self):
        """(number, line) of each line since the last call; all lines again if the file was cut below that."""
        with open(self.path, "rb", buffering=0) as file:
            # A file that was cut and has grown since shows by its last line: that one has another time.
            file.seek(self._offset - len(self._last))
            data = file.read()
            if not data.startswith(self._last):
                self._begin()
                file.seek(0)
                data = file.read()
        data = data[len(self._last):data.rfind(b"\n") + 1]
        for line in data.splitlines(keepends=True):
            self._offset += len(line)
            self._count += 1
            self._last = line
            yield self._count, line


class Mlflow:
    """A run of MLflow. Its metrics are written one by one, so a killed follower may have sent a part of a step."""

    def __init__(self, log, training, header, project):
        mlflow = library("mlflow", "mlflow-skinny")
        self._entities = importlib.import_module("mlflow.entities")
        self._client = mlflow.MlflowClient()
        project = project or os.environ.get("MLFLOW_EXPERIMENT_NAME") or "strata"
        experiment = self._client.get_experiment_by_name(project)
        experiment = experiment.experiment_id if experiment else self._client.create_experiment(project)
        found = self._client.search_runs([experiment], "tags.`strata.training` = '%s'" % training)
        if found:
            self._run = found[0].info.run_id
            self._client.update_run(self._run, status="RUNNING")
        else:
            tags = {"strata.training": training, "strata.log": log}
            self._run = self._client.create_run(experiment, int(1000 * header.get("began", time.time())), tags,
                                                header.get("name")).info.run_id
        there = self._client.get_run(self._run).data
        self._client.log_batch(self._run, params=[
            self._entities.Param(name, text) for name, text in parameters(header) if name not in there.params])
        self._waiting = []
        # By metric: the last step that was sent. Steps of a metric are sent in their order.
        self._sent = {name: max(point.step for point in self._client.get_metric_history(self._run, name))
                      for name in there.metrics}

    def add(self, step, seconds, values):
        for name, value in values:
            name = re.sub(r"[^\w./ -]", "_", name)
            if step > self._sent.get(name, -1):
                self._sent[name] = step
                self._waiting.append(self._entities.Metric(name, value, int(1000 * seconds), step))

    def flush(self):
        self._client.log_batch(self._run, metrics=self._waiting)
        self._waiting = []

    def end(self, how):
        self._client.set_terminated(self._run, STATES[how][0])

    def leave(self):
        """The training goes on without us: the run stays RUNNING."""


class Wandb:
    """A run of Weights & Biases: a row for each step, which cannot be changed once a later one was sent."""

    def __init__(self, log, training, header, project):
        wandb = library("wandb", "wandb")
        settings = wandb.setup().settings
        if settings.mode in ("offline", "dryrun"):
            for name in os.listdir(settings.wandb_dir) if os.path.isdir(settings.wandb_dir) else []:
                if name.startswith("offline-run-") and name.endswith("-" + training):
                    raise FollowError("W&B is offline and cannot say what it has of %s: remove %s, or go online"
                                      % (log, os.path.join(settings.wandb_dir, name)))
        self._run = wandb.init(
            project=project or os.environ.get("WANDB_PROJECT") or "strata", id=training, name=header.get("name"),
            config=dict(header, log=log), resume="allow", reinit="create_new",
            settings=wandb.Settings(console="off", disable_git=True, save_code=False))
        self._next = self._run.starting_step  # the first step that the run lacks
        self._step, self._row = -1, {}

    def add(self, step, seconds, values):
        if step > self._step:
            self._send()
        if step >= self._next:
            self._step = step
            self._row.update(values)

    def _send(self):
        if self._row:
            self._run.log(self._row, step=self._step)
            self._next, self._row = self._step + 1, {}

    def flush(self):
        """Rows are sent in the background."""

    def end(self, how):
        self._send()
        self._run.finish(exit_code=STATES[how][1])

    def leave(self):
        """The newest row may still grow, so it is left to the next follower."""
        self._run.finish()


SINKS = {"mlflow": Mlflow, "wandb": Wandb}


class Follower:
    """One log and its run."""

    def __init__(self, path, to, project):
        self._path, self._to, self._project = os.path.abspath(path), to, project
        self._lines = Lines(path)
        self._training = self._run = self._lock = None
        self._clock, self._how = None, None  # when the last step was done, how the training ended

    def poll(self):
        """Sends what is new; whether the training has ended."""
        for number, line in self._lines.new():
            try:
                record = json.loads(line)
                self._take(number, line, record, record["step"])
            except (ValueError, TypeError, KeyError) as error:
                raise FollowError("%s:%d: expected a record of a training's log, got %s (%s)"
                                  % (self._path, number, line[:60], error))
        if self._run:
            self._run.flush()
        if self._how:
            self._run.end(self._how)
            self._run = None
            self._lock.close()
        return self._how is not None

    def _take(self, number, line, record, step):
        if record.get("version", VERSION) > VERSION:
            raise FollowError("%s:%d: the log has version %d, this program reads up to %d"
                              % (self._path, number, record["version"], VERSION))
        if number == 1:
            self._begin(hashlib.sha256(line).hexdigest()[:16], record.get("run", {}))
        self._how = record.get("end")
        if "run" in record:
            self._clock = record["run"]["began"]
        elif self._clock is not None:
            self._clock += record.get("seconds", 0)
        if not record.keys() & {"run", "end", "texts", "histograms"}:
            values = {name: value for name, value in record.items() if name not in ("step", "version")}
            self._run.add(step, time.time() if self._clock is None else self._clock, list(numbers(values)))

    def _begin(self, training, header):
        """The first line: of the training that we know, or of another one, which has replaced it."""
        self._clock = None
        if training == self._training:
            return
        if self._run:
            self._run.flush()
            self._run.end("stopped")
        self._training = training
        self._lock = socket.socket(socket.AF_UNIX)  # the kernel frees its name when this process is gone
        try:
            self._lock.bind("\0strata.follow.%s.%s" % (self._to, training))
        except OSError:
            raise FollowError("another process sends %s to %s" % (self._path, self._to))
        self._run = SINKS[self._to](self._path, training, header, self._project)

    def leave(self):
        if self._run:
            self._run.leave()


def follow(logs, to, project, once):
    followers = [Follower(log, to, project) for log in logs]
    with contextlib.ExitStack() as stack:
        for follower in followers:
            stack.callback(follower.leave)
        while followers:
            for follower in list(followers):
                with contextlib.nullcontext() if once else contextlib.suppress(FileNotFoundError):
                    if follower.poll() or once:
                        followers.remove(follower)
            if followers:
                time.sleep(SECONDS)


def main():
    head, _, rest = __doc__.partition("\n\nusage: ")
    usage, _, rest = rest.partition("\n")
    parser = argparse.ArgumentParser(usage=usage, description=head + rest,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("logs", nargs="+", metavar="LOG")
    parser.add_argument("--to", required=True, choices=sorted(SINKS))
    parser.add_argument("--project", metavar="NAME")
    parser.add_argument("--once", action="store_true", help="send what is there, and do not wait")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        follow(arguments.logs, arguments.to, arguments.project, arguments.once)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except Exception as error:
        theirs = type(error).__module__.split(".")[0]
        if theirs not in SINKS and not isinstance(error, (FollowError, OSError)):
            raise
        print("error: %s%s" % (theirs + ": " if theirs in SINKS else "", error), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
