#!/usr/bin/env python3
"""What tools/package makes, installed as its users install it: where there is no Bazel, no compiler, no root.

usage: package.py STRATA MODELS TEST...

The wheel goes into a fresh virtual environment whose PyTorch is the set-up's pinned one, with the name and
version that pip asks for; the archive is told of the same LibTorch by $LIBTORCH.
"""

import glob
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
import zipfile

import program
from program import require

_MOST_BYTES = 20_000_000


def packages(strata):
    return os.path.join(strata.root, "tools")


def wheel_of(strata):
    return glob.glob(packages(strata) + "/strata-*.whl")[0]


def pytorch():
    with open(os.path.join(os.environ["TEST_SRCDIR"], "pytorch/folder.txt")) as file:
        return file.read().strip()


def run(strata, *line, code=0, **variables):
    """What the command writes, in an environment of nothing but a home and a PATH without tools."""
    environment = {"HOME": strata.folder, "PATH": "/nowhere", "TMPDIR": os.environ["TMPDIR"], **variables}
    ran = subprocess.run(line, cwd=strata.folder, env=environment, stdin=subprocess.DEVNULL, text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    require(ran.returncode == code, "exit code %d of %s" % (code, " ".join(line)), "%d\n%s" % (ran.returncode, ran.stdout))
    return ran.stdout


def install(strata, name, torch="2.11.0", code=0, wheel=None):
    """A virtual environment with this version of PyTorch, or none, and the wheel; what pip says."""
    folder = strata.path(name)
    run(strata, sys.executable, "-m", "venv", "--without-pip", folder, PATH="/usr/bin:/bin")
    site = glob.glob(folder + "/lib/python3*/site-packages")[0]
    if torch:
        os.symlink(os.path.join(pytorch(), "torch"), site + "/torch")
        os.mkdir(site + "/torch-%s.dist-info" % torch)
        with open(site + "/torch-%s.dist-info/METADATA" % torch, "w") as file:
            file.write("Metadata-Version: 2.1\nName: torch\nVersion: %s\n" % torch)
    dependencies = [] if torch else ["--no-deps"]
    return run(strata, sys.executable, "-m", "pip", "--python", folder + "/bin/python", "install", "--no-index",
               "--no-cache-dir", "--disable-pip-version-check", *dependencies, wheel or wheel_of(strata), code=code,
               PATH="/usr/bin:/bin")


def trains(strata, binary, **variables):
    """Trains digits by name; shows how long the first loss took."""
    start = time.monotonic()
    job = subprocess.Popen([binary, "train", "digits", "--steps=40"], cwd=strata.folder, text=True,
                           env={"HOME": strata.folder, "PATH": "/nowhere", **variables},
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    shown, first = "", None
    for line in job.stdout:
        shown += line
        if line.startswith("step") and first is None:
            first = time.monotonic() - start
    require(job.wait() == 0 and re.search(r"^step 40/40 .*\n(.*\n)*test loss .* accuracy 0\.[6-9]", shown, re.MULTILINE),
            "a training of digits", shown)
    print("first loss after %.1f s" % first)


def wheel(strata):
    size = os.path.getsize(wheel_of(strata))
    require(size <= _MOST_BYTES, "at most %d bytes" % _MOST_BYTES, size)
    print("wheel: %.1f MB" % (size / 1e6))
    start = time.monotonic()
    install(strata, "venv")
    print("installed in %.1f s" % (time.monotonic() - start))
    binary = strata.path("venv/bin/strata")
    require("Nothing is missing" in run(strata, binary, "doctor"), "a healthy doctor", run(strata, binary, "doctor"))
    trains(strata, binary)
    run(strata, binary, "new", "mine", "--template=language")
    require(re.search("test loss", run(strata, binary, "train", "mine/train.lua", "--steps=3")), "a test loss", "")
    missing = run(strata, strata.path("venv/bin/python"), "-m", "strata.follow", "log", "--to=mlflow", "--once", code=1)
    require("No such file" in missing, "a log that is missing", missing)
    require(os.path.exists(strata.path("venv/share/man/man1/strata.1")), "a manual page", os.listdir(strata.path("venv")))
    with zipfile.ZipFile(wheel_of(strata)) as file:
        names = file.namelist()
    for part in ("share/docs/guides/first.md", "share/licences/zlib1g", "share/models/textlm.lua",
                 "bin/libstrata_engine.so"):
        require("strata/" + part in names, part, names)


def arrow(strata):
    """Without pyarrow an error says how to install it; beside the wheel its libraries are found."""
    install(strata, "venv")
    shutil.copy("engine/data/testdata/records/people.parquet", strata.folder)
    strata.write("rows.lua", 'print(#require("strata").data.parquet{"people.parquet", length=4})')
    binary = strata.path("venv/bin/strata")
    shown = run(strata, binary, "run", "rows.lua", code=1)
    require("libparquet.so" in shown and "pip install 'strata[arrow]'" in shown, "what to install", shown)
    with open(os.path.join(os.environ["TEST_SRCDIR"], "arrow/folder.txt")) as file:
        pyarrow = file.read().strip() + "/pyarrow"
    require(run(strata, binary, "run", "rows.lua", LIBARROW=pyarrow) == "57\n", "the rows", "")
    os.symlink(pyarrow, glob.glob(strata.path("venv/lib/python3*/site-packages"))[0] + "/pyarrow")
    require(run(strata, binary, "run", "rows.lua") == "57\n", "the rows", "")


def without_torch(strata):
    """pip refuses another PyTorch; without any, the doctor says what to do, and what needs none works."""
    require("torch==2.11" in install(strata, "old", torch="2.10.0", code=1), "the version that is wanted", "")
    install(strata, "none", torch=None)
    binary = strata.path("none/bin/strata")
    shown = run(strata, binary, "doctor", code=1)
    require("pip install torch==2.11.0" in shown and "libtorch_cpu.so" in shown, "what is missing", shown)
    require("stage" in run(strata, binary, "plan", "digits"), "a plan", "")


def unpack(strata):
    """The program of the archive."""
    with tarfile.open(glob.glob(packages(strata) + "/strata-*.tar.gz")[0]) as archive:
        archive.extractall(strata.folder)
    return glob.glob(strata.path("strata-*/bin/strata"))[0]


def archive(strata):
    binary = unpack(strata)
    shown = run(strata, binary, "doctor", code=1)
    require("$LIBTORCH" in shown, "the variable", shown)
    trains(strata, binary, LIBTORCH=os.path.join(pytorch(), "torch"))
    trains(strata, binary, LIBTORCH=pytorch())
    shown = run(strata, binary, "doctor", code=1, LIBTORCH="/elsewhere")
    require("/elsewhere/lib/libtorch_cpu.so" in shown, "where it was looked for", shown)


def side_by_side(strata):
    """Two installations have each their own program, engine and models."""
    install(strata, "one")
    install(strata, "two")
    other = unpack(strata)
    for binary, folder in ((strata.path("one/bin/strata"), strata.path("one/")),
                           (strata.path("two/bin/strata"), strata.path("two/")), (other, os.path.dirname(other))):
        shown = run(strata, binary, "doctor", LIBTORCH=os.path.join(pytorch(), "torch"))
        program_line = next(line for line in shown.splitlines() if line.startswith("program"))
        models_line = next(line for line in shown.splitlines() if line.startswith("models"))
        require(folder.rstrip("/") in program_line and os.path.dirname(folder.rstrip("/")) in models_line, folder, shown)
    with open(glob.glob(strata.path("one/lib/python3*/site-packages/strata/bin/libstrata_engine.so"))[0], "wb"):
        pass  # the one that breaks is the one's own
    run(strata, strata.path("one/bin/strata"), "doctor", code=1)
    run(strata, strata.path("two/bin/strata"), "doctor")


if __name__ == "__main__":
    program.main(globals())
