"""Runs many cases in one process of Strata. What ends the process is the last one's that began; the
others go on in a new process."""

import array
import os
import pathlib
import re
import shutil

import program
import values

DRIVER = pathlib.Path(__file__).resolve().parent / "driver.lua"
SHARE = 200  # cases in one process
SECONDS = 600  # for one process; far more than it takes

HEAD = """
local strata = require "strata"
local nn, F = strata.nn, strata.F
local driver = require "driver"
local T, show = driver.tensor, driver.show
driver.device = "%s"
""" % values.DEVICE


class Outcome:
    """How far a case came (done, refused, late, crash, hang), in what words, and its values: by name
    a dtype, a shape and the elements."""

    def __init__(self):
        self.what, self.text, self.values = "crash", "", {}


def run(strata, texts, prelude):
    """The outcomes of cases: `texts` has for each number the arguments of driver.case behind it;
    `prelude` is Lua that they share."""
    outcomes, waiting = {}, list(texts)
    while waiting:
        _run_share(strata, {n: texts[n] for n in waiting[:SHARE]}, prelude, outcomes)
        waiting = [number for number in waiting if number not in outcomes]
    return outcomes


def _run_share(strata, texts, prelude, outcomes):
    shutil.copy(DRIVER, strata.path("driver.lua"))
    shutil.rmtree(strata.path("saves"), ignore_errors=True)
    script = HEAD + prelude + "".join("driver.case(%d, %s)\n" % item for item in texts.items())
    before = ["timeout", "--signal=KILL", str(SECONDS), "stdbuf", "-oL"]
    code, out, errors = strata.start("run", strata.write("cases.lua", script), before=before).end()
    begun = _read(out, outcomes)
    for number in texts:
        is_done = number in outcomes and outcomes[number].what == "done"
        if is_done and os.path.isdir(strata.path("saves/%d" % number)):
            outcomes[number].values.update(saved(strata.path("saves/%d" % number)))
    if code == 0:
        return
    if begun is None:
        raise AssertionError("strata run ended with %d before the first case:\n%s" % (code, errors))
    if outcomes[begun].what == "crash":
        outcomes[begun].what = "hang" if code == 137 else "crash"
        outcomes[begun].text = "exit code %d: %s" % (code, errors[-600:])


def _read(out, outcomes):
    """Takes the driver's lines; the number of the last case that began."""
    begun = None
    for what, number, rest in re.findall(r"^#(\w+) (\d+) ?(.*)$", out, re.M):
        outcome = outcomes.setdefault(int(number), Outcome())
        if what == "begins":
            begun = int(number)
        elif what == "value":
            name, dtype, shape, elements = re.fullmatch(r"(\S+) (\S+) \((\S*)\) ?(.*)", rest).groups()
            sizes = [int(size) for size in shape.split(",") if size]
            outcome.values[name] = (dtype, sizes, [float(e) for e in elements.split()])
        else:
            outcome.what, outcome.text = what, rest
    return begun


_TYPES = {"F32": ("float32", "f"), "F64": ("float64", "d"), "I64": ("int64", "q"),
          "BF16": ("bfloat16", "H")}  # its bits


def saved(folder):
    """The tensors of the newest save in a folder of saves; of a tensor in slices the slices."""
    values = {}
    save = pathlib.Path(folder) / (pathlib.Path(folder) / "latest").read_text().split()[0]
    for file in sorted(save.glob("*.safetensors")):
        for name, (stored, shape, data) in program.read_tensors(file).items():
            dtype, code = _TYPES[stored]
            values["saved." + name] = (dtype, shape, [float(e) for e in array.array(code, data)])
    return values
