#!/usr/bin/env python3
"""Files that earlier versions wrote, in tests/formats/: NAME-VERSION of each format. They stay readable, and what
is written now has a version of which files are there.

usage: formats.py STRATA MODELS TEST...
"""

import os
import re
import shutil

import program
from program import require


def kept(strata, name):
    """A copy of all files of tests/formats in the program's folder; the paths of the format's, by version."""
    source = os.path.join(strata.root, "tests/formats")
    found = {}
    for entry in os.listdir(source):
        path = os.path.join(source, entry)
        (shutil.copytree if os.path.isdir(path) else shutil.copy)(path, strata.path(entry))
        match = re.fullmatch(name + r"-(\d+)(\..*)?", entry)
        if match:
            found[int(match.group(1))] = entry
    require(found, "files of " + name, os.listdir(source))
    return found


def saves(strata):
    versions = kept(strata, "save")
    for entry in versions.values():
        strata.run("inspect", entry, says="whole")
        shown = strata.run("train", "net.lua", "--resume=" + entry, "--steps=6")
        require(re.search(r"^step 5/6 ", shown, re.MULTILINE) and "step 4/6" not in shown, "the steps behind it", shown)
        require("the job has changed" not in shown, "the job that was saved", shown)
        strata.run("eval", "net.lua", "--weights=" + entry, says="accuracy")
    strata.run("train", "net.lua", "--save.dir=runs", "--steps=1")
    strata.run("train", "net.lua", "--save.dir=frozen", "--steps=1", "--freeze=1")
    strata.run("train", "net.lua", "--save.dir=thawed", "--steps=2", "--resume=frozen")
    for save, began in (("runs/step-00000001", None), ("thawed/step-00000002", {"1.weight": 1, "1.bias": 1}),
                        (versions[2] + "/step-00000004", {"1.weight": 2, "1.bias": 2})):
        manifest = strata.json(save + "/manifest.json")["manifest"]
        require(manifest["format"] in versions, "files of this version", versions)
        require(manifest["training"].get("began") == began, "when parameters began to learn", manifest["training"])


def plans(strata):
    versions = kept(strata, "plan")
    for entry in versions.values():
        script = strata.write("look.lua", 'local job = require("strata").load("net.lua")\n' +
                              'print(job:plan(require("strata").plan("%s")).bounds[2])' % entry)
        require(strata.run("run", script).strip() == "3", "the cut", entry)
    strata.run("run", strata.write("save.lua", 'require("strata").load("net.lua"):plan{}:save("new.plan")'))
    require(strata.json("new.plan")["strata_plan"] in versions, "files of this version", versions)


def costs(strata):
    versions = kept(strata, "costs")
    for entry in versions.values():
        strata.run("plan", "net.lua", "--partition=time", "--costs=" + entry, says="the file of costs")
    strata.run("plan", "net.lua", "--write_costs=new.json")
    require(strata.json("new.json")["costs"] in versions, "files of this version", versions)


def links(strata):
    versions = kept(strata, "links")
    for entry in versions.values():
        shown = strata.run("plan", "net.lua", "--pipe=2", "--partition=auto", "--links=" + entry)
        require("step" in shown or "cuts" in shown, "a plan with measured links", shown)
    strata.run("doctor", "--links", "--ranks=2", "--output=new.json")
    require(strata.json("new.json")["links"] in versions, "files of this version", versions)


def logs(strata):
    versions = kept(strata, "log")
    needed = {"step", "loss", "grad_norm", "lr", "samples", "seconds", "samples_per_second", "peak_memory", "bubble"}
    strata.run("train", "net.lua", "--log=new.jsonl")
    for entry in list(versions.values()) + ["new.jsonl"]:
        records = program.records(strata.path(entry))
        require({record["version"] for record in records} <= set(versions), "files of this version", records[0])
        taken = program.steps(strata.path(entry))
        require(len(taken) == 4 and all(needed <= set(record) for record in taken), "four steps", taken)
        require(any("test_loss" in record for record in records), "the evaluation", records[-1])


def traces(strata):
    versions = kept(strata, "trace")
    strata.run("train", "net.lua", "--trace=new.json")
    for entry in list(versions.values()) + ["new.json"]:
        trace = strata.json(entry)
        require(trace["otherData"]["strata_trace"] in versions, "files of this version", trace["otherData"])
        events = trace["traceEvents"]
        names = {event["args"]["name"] if event["name"] == "process_name" else event["name"] for event in events}
        require({"rank 0", "rank 1", "0F0", "1B1", "memory", "step 3"} <= names, "ranks, actions, steps", names)


if __name__ == "__main__":
    program.main(globals())
