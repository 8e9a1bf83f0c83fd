"""PyTorch for the twins: one thread, and without its compiler, which the optimizers otherwise load.

The folder with its Python code is named by $PYTORCH, else by Bazel's @pytorch, else by tools/pytorch."""

import os
import pathlib
import subprocess
import sys
import types
import warnings

MASK = (1 << 64) - 1


def _folder():
    if "PYTORCH" in os.environ:
        return os.environ["PYTORCH"]
    if "TEST_SRCDIR" in os.environ:
        return pathlib.Path(os.environ["TEST_SRCDIR"], "pytorch/folder.txt").read_text().strip()
    script = pathlib.Path(__file__).resolve().parents[2] / "tools/pytorch"
    return subprocess.run([script], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


sys.path.insert(0, _folder())
sys.modules["torch._dynamo"] = types.SimpleNamespace(
    graph_break=lambda: None, disable=lambda function, *_, **__: function)
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # that NumPy is missing
    import torch
torch._dynamo = sys.modules["torch._dynamo"]
torch.set_num_threads(1)


def _check_with(error, holds, message):
    """torch._check_with without sympy, which only its compiler needs."""
    if not holds:
        raise error(message())


torch._check_with = _check_with


def _split_mix(x):
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & MASK
    return x ^ (x >> 31)


def seed_forward(job_seed, micro_batch, layer):
    """Seeds as a layer's forward pass is seeded there (engine/layers/random/random.h)."""
    seed = _split_mix(job_seed)
    for part in (micro_batch, layer):
        seed = _split_mix(seed ^ (part & MASK))
    torch.manual_seed(seed)
