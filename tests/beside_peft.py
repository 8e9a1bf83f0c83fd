#!/usr/bin/env python3
"""Strata beside the package PEFT.

    beside_peft.py STRATA MODELS losses
"""

import os
import pathlib
import subprocess
import sys
import types

ROOT = pathlib.Path(__file__).absolute().parent.parent
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "tools/peers")]
import program
import tuning
from program import require


def losses(strata):
    """Twenty losses of low-rank parts in a Llama are those of transformers with PEFT."""
    folders = [(ROOT.parent / name / "folder.txt").read_text().strip() for name in ["pytorch", "peft"]]
    environment = tuning.environment_with(folders)
    options = types.SimpleNamespace(shape="tiny", strata=strata.binary, steps=20, flags=[])
    folder = pathlib.Path(strata.folder)
    subprocess.run([sys.executable, tuning.__file__, "--make=%s" % folder, "--shapes=tiny"], check=True, env=environment)
    ours, theirs = (run(options, folder, "float32", 1, environment)["losses"] for run in [tuning.run_ours, tuning.run_theirs])
    require(len(ours) == len(theirs) == 20 and theirs[-1] < theirs[0] - 0.1, "twenty losses that fall", theirs)
    apart = max(abs(a - b) for a, b in zip(ours, theirs))
    require(apart <= 1e-5, "equal losses", [ours, theirs])
    print("losses of 20 steps differ from PEFT's by at most %.1e" % apart)


if __name__ == "__main__":
    globals()[sys.argv[3]](program.Program(sys.argv[1], sys.argv[2]))
