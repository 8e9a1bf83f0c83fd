#!/usr/bin/env python3
"""The files of a training's numbers, read as the programs read them that they are for: by those
programs' own packages (tools/readers), and by readers of this file's own.

usage: step_files.py STRATA MODELS TEST...
"""

import csv
import glob
import json
import math
import os
import re
import struct
from collections import namedtuple

import program
from program import require

# As tensorboard's own HistogramValue.
Histogram = namedtuple("Histogram", "min max num sum sum_squares bucket_limit bucket")

FLAGS = ["--save.dir=runs", "--save.every=4", "--eval.every=3", "--log=log.jsonl"]


def train(strata, steps, *flags):
    return strata.run("train", "digits.lua", "--pipe=2", "--steps=%d" % steps, *FLAGS, *flags)


def log(strata, kind):
    return {record["step"]: record for record in program.records(strata.path("log.jsonl")) if kind in record}


def in_two_runs(strata, flag):
    """A training that goes on before where its files had come to: the log holds each step once."""
    train(strata, 4, flag)
    os.rename(strata.path("runs/latest"), strata.path("latest4"))
    train(strata, 7, flag, "--resume=runs/step-00000004")
    # As if the run had been killed before it saved step 7.
    os.rename(strata.path("latest4"), strata.path("runs/latest"))
    train(strata, 8, flag, "--resume")
    steps = [record["step"] for record in program.steps(strata.path("log.jsonl"))]
    require(steps == list(range(8)), "each step once, in order", steps)
    return log(strata, "grad_norm"), log(strata, "test_loss")


def table(strata):
    steps, tests = in_two_runs(strata, "--csv=table.csv")
    with open(strata.path("table.csv"), newline="") as file:
        rows = list(csv.DictReader(file))
    found = [row for row in rows if row["loss"]]
    require([int(row["step"]) for row in found] == list(range(8)), "each step once", rows)
    for row in found:
        require(float(row["loss"]) == steps[int(row["step"])]["loss"], "the log's loss", row)
    evaluations = {int(row["step"]): row for row in rows if row["test_loss"]}
    require(set(evaluations) == set(tests), "the log's evaluations", rows)
    for step, row in evaluations.items():
        require(float(row["accuracy"]) == tests[step]["accuracy"], "the log's accuracy", row)


def prometheus(strata):
    steps, tests = in_two_runs(strata, "--prometheus=numbers.prom")
    text = strata.read("numbers.prom")
    found = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            name, number = re.fullmatch(r"([a-z_]+(?:\{.*\})?) (\S+)", line).groups()
            found[name] = float(number)
            require("# TYPE %s gauge" % name.split("{")[0] in text, "the type of " + name, text)
    require(found["strata_steps_done"] == 8, "eight steps", text)
    require(found["strata_loss"] == steps[7]["loss"], "the last loss", text)
    require(found["strata_test_accuracy"] == tests[7]["accuracy"], "the last accuracy", text)
    if parser := program.package("prometheus_client.parser"):
        theirs = {sample.name + labels(sample): sample.value for family in parser.text_string_to_metric_families(text)
                  for sample in family.samples}
        require(theirs == found, "prometheus_client's", (theirs, found))


def labels(sample):
    return "{%s}" % ",".join('%s="%s"' % pair for pair in sample.labels.items()) if sample.labels else ""


def crc32c(data):
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    return crc ^ 0xffffffff


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xa282ead8) & 0xffffffff


def messages(path):
    """The messages of a TFRecord file, whose checksums hold."""
    with open(path, "rb") as file:
        while head := file.read(12):
            (length,) = struct.unpack("<Q", head[:8])
            require(struct.unpack("<I", head[8:]) == (masked(head[:8]),), "a length's sum", path)
            data = file.read(length)
            require(struct.unpack("<I", file.read(4)) == (masked(data),), "a record's sum", path)
            yield data


def fields(data):
    """(number, value) of each field of a protobuf message."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7f) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        key = varint()
        size = {0: 0, 1: 8, 5: 4}.get(key & 7)
        if key & 7 == 0:
            yield key >> 3, varint()
            continue
        size = varint() if size is None else size
        yield key >> 3, data[at:at + size]
        at += size


def doubles(data):
    return struct.unpack("<%dd" % (len(data) // 8), data)


def value_of(entry):
    """A scalar, a histogram or a text that says that it is one."""
    if 2 in entry:
        return struct.unpack("<f", entry[2])[0]
    if 5 in entry:
        histogram = {number: doubles(data) for number, data in fields(entry[5])}
        return Histogram(*(histogram[number][0] for number in range(1, 6)), list(histogram[6]), list(histogram[7]))
    tensor, metadata = dict(fields(entry[8])), dict(fields(entry[9]))
    require((tensor[1], tensor[2], metadata[1]) == (7, b"\x12\x02\x08\x01", b"\x0a\x04text"), "a text", entry)
    return tensor[8].decode()


def events_of(paths):
    """{tag: {step: value}} as TensorBoard makes it of these files."""
    found = {}
    for path in sorted(paths):
        events = [dict(fields(data)) for data in messages(path)]
        require(events[0][3] == b"brain.Event:2", "the version", path)
        for event in events[1:]:
            step = event.get(2, 0)
            if 7 in event:  # a session begins: what is behind its step is forgotten
                found = {tag: {at: value for at, value in values.items() if at < step} for tag, values in found.items()}
            for _, value in fields(event.get(5, b"")):
                entry = dict(fields(value))
                found.setdefault(entry[1].decode(), {})[step] = value_of(entry)
    return found


def accumulated(strata):
    """What TensorBoard's own reader makes of the folder `events`; None where it is not here."""
    reader = program.package("tensorboard.backend.event_processing.event_accumulator")
    if reader is None:
        return None
    events = reader.EventAccumulator(strata.path("events"), size_guidance={"histograms": 0})
    events.Reload()
    return events


def tensorboard(strata):
    steps, tests = in_two_runs(strata, "--tensorboard=events")
    paths = glob.glob(strata.path("events/events.out.tfevents.*"))
    require(len(paths) == 3, "a file for each run", paths)

    def agrees(found, what):
        require(sorted(found["loss"]) == list(range(8)), "each step", (what, found))
        for step, loss in found["loss"].items():
            require(math.isclose(loss, steps[step]["loss"], rel_tol=1e-6), "the log's loss", what)
        for step, accuracy in found["test/accuracy"].items():
            require(math.isclose(accuracy, tests[step]["accuracy"], rel_tol=1e-6), "the log's accuracy", what)

    agrees(events_of(paths), "our reader")
    if events := accumulated(strata):
        agrees({tag: {event.step: event.value for event in events.Scalars(tag)}
                for tag in events.Tags()["scalars"]}, "tensorboard")


def texts(strata):
    """What a language model wrote, by prompt and step."""
    strata.run("train", "llama.lua", "--seq=32", "--dim=16", "--depth=1", "--hidden=32", "--steps=4", "--eval.every=2",
               "--eval.samples=The ", "--log=log.jsonl", "--tensorboard=events")
    logged = {step: record["texts"][0] for step, record in log(strata, "texts").items()}
    require(sorted(logged) == [1, 3], "two texts", logged)
    found = events_of(glob.glob(strata.path("events/*")))
    require(found["samples/1"] == logged, "the log's texts", found)
    if events := accumulated(strata):
        array_of = program.package("tensorboard.util.tensor_util").make_ndarray
        theirs = {event.step: array_of(event.tensor_proto)[0].decode() for event in events.Tensors("samples/1")}
        require(theirs == logged, "tensorboard's", theirs)


# The same training, whose gradients are read from the engine.
_GRADIENTS = """
local strata = require "strata"
local e = strata.load(arg[1]):start{pipe=2, data=2, zero=1, threads=1, transport="threads",
                                   partition={0, 4, 10}}
local found = {}
for step = 0, 3 do
  e:train_batch()
  if step % 2 == 1 then
    found[tostring(step)] = {}
    for _, name in ipairs{"0.weight", "0.bias", "2.weight", "2.bias", "7.weight", "7.bias", "9.weight", "9.bias"} do
      found[tostring(step)][name] = e:gradient(name):flatten(0):tolist()
    end
  end
end
print(strata.json.encode(found))
"""


def agrees_with(histogram, elements, what):
    """The histogram is a count of all elements."""
    got = (histogram.num, histogram.min, histogram.max)
    require(got == (len(elements), min(elements), max(elements)), "%s: %r" % (what, got), histogram)
    for got, expected in [(histogram.sum, math.fsum(elements)),
                          (histogram.sum_squares, math.fsum(x * x for x in elements))]:
        require(math.isclose(got, expected, rel_tol=1e-9, abs_tol=1e-12), "%s: %r" % (what, expected), histogram)
    limits = [-math.inf, *histogram.bucket_limit]
    counts = [sum(begin <= x < end for x in elements) for begin, end in zip(limits, limits[1:])]
    require(list(histogram.bucket) == counts and len(counts) > 10, "%s: %r" % (what, counts), histogram)


def histograms(strata):
    """Of every gradient, by those who read TensorBoard's files, against all elements: two stages,
    two replicas with shards, four processes."""
    flags = ["--pipe=2", "--data=2", "--zero=1", "--threads=1", "--partition=0,4,10", "--histograms=2"]
    strata.run("train", "digits.lua", *flags, "--steps=4", "--tensorboard=events", "--log=log.jsonl")
    shown = strata.run("run", strata.write("gradients.lua", _GRADIENTS), os.path.join(strata.models, "digits.lua"))
    expected = json.loads(shown[shown.index("{"):])
    require(sorted(expected) == ["1", "3"] and len(expected["3"]) == 8, "two steps' gradients", list(expected))

    def agrees(found, what):
        names = sorted("gradients/" + name for name in expected["3"])
        require(sorted(found) == names, "the user's names", (what, sorted(found)))
        for tag, values in found.items():
            require(sorted(values) == [1, 3], "every second step", (what, tag, sorted(values)))
            for step, histogram in values.items():
                agrees_with(histogram, expected[str(step)][tag[len("gradients/"):]], (what, tag, step))

    def of_gradients(found):
        return {tag: values for tag, values in found.items() if tag.startswith("gradients/")}

    agrees(of_gradients(events_of(glob.glob(strata.path("events/*")))), "our reader")
    logged = {}
    for step, record in log(strata, "histograms").items():
        for name, entry in record["histograms"].items():
            entry = dict(entry)
            limits, counts = entry.pop("limits"), entry.pop("counts")
            logged.setdefault("gradients/" + name, {})[step] = Histogram(**entry, bucket_limit=limits, bucket=counts)
    agrees(logged, "the log")
    strata.run("train", "digits.lua", "--histograms=2", "--steps=1", code=2, says="--tensorboard=DIR")
    if events := accumulated(strata):
        agrees({tag: {event.step: event.histogram_value for event in events.Histograms(tag)}
                for tag in events.Tags()["histograms"]}, "tensorboard")


def plain(strata):
    """Nobody who reads a pipe or a file gets a control byte, nor one who asked for no colours."""
    for environment in [{}, {"NO_COLOR": "1"}, {"TERM": "xterm-256color", "CLICOLOR_FORCE": "1"}]:
        for words in [("train", "digits.lua", "--steps=2", "--pipe=2"), ("plan", "digits.lua"),
                      ("doctor",), ("help",), ("help", "train")]:
            shown = strata.run(*words, environment=environment)
            found = re.findall(r"[\x00-\x08\x0b-\x1f\x7f]", shown)
            require(not found, "no control byte", (words, found))


def schema(strata):
    """docs/reference/contract.md says what the entries of the log are, and the log has no others."""
    train(strata, 4, "--losses")
    records = program.records(strata.path("log.jsonl"))
    page = strata.read(os.path.join(strata.root, "docs/reference/contract.md"))
    table = page.split("\n## The log\n")[1].split("\n## ")[0]
    said = set(re.findall(r"^\| `(\w+)` \|", table, re.M))
    for record in records:
        require(set(record) <= said, "entries of the table", (record, said))
    require(json.loads(json.dumps(records)) == records, "plain JSON", records)


def ends(strata):
    """The log's last line, after whichever end, and none of it once the training has been resumed."""
    def ended(how):
        records = program.records(strata.path("log.jsonl"))
        found = [record["end"] for record in records if "end" in record]
        require(found == [how] and records[-1]["end"] == how, how, records[-1])
        return [record["run"] for record in records if "run" in record]

    job = strata.start("train", "digits.lua", "--steps=100000", "--print_every=1", *FLAGS)
    job.wait_for_steps()
    job.process.terminate()
    job.end()
    ended("stopped")
    done = program.steps(strata.path("log.jsonl"))[-1]["step"] + 1
    train(strata, done + 2, "--resume")
    runs = ended("done")
    require([run["steps"] for run in runs] == [100000, done + 2], "two runs", runs)
    require((runs[1]["ranks"], runs[1]["plan"]["pipe"], runs[1]["job"]["seed"]) == (2, 2, 1234), "the job", runs[1])
    strata.run("train", "digits.lua", "--optimizer.lr=1e38", "--steps=9", "--log=log.jsonl", code=1)
    ended("failed")


if __name__ == "__main__":
    program.main(globals())
