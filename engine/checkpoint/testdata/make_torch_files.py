"""Writes the files of torch.save() that torch_file_test reads: `PYTHONPATH=$(tools/pytorch) python3 make_torch_files.py`."""

import collections
import pathlib

import torch

folder = pathlib.Path(__file__).parent
matrix = torch.arange(12, dtype=torch.float32).reshape(3, 4)
counts = torch.arange(5, dtype=torch.int64)

model = torch.nn.BatchNorm1d(4)
with torch.no_grad():
    model.weight.copy_(torch.arange(4) + 0.5)

tensors = collections.OrderedDict(
    whole=matrix,
    rows=matrix[1:],  # views of one storage
    columns=matrix[:, 1:3],
    turned=matrix.t(),
    spread=torch.tensor(7.0).expand(2, 3),
    empty=torch.zeros(0, 4),
    scalar=torch.tensor(2.5, dtype=torch.float64),
    half=torch.tensor([1.0, -2.0, 65504.0], dtype=torch.float16),
    brain=torch.tensor([1.0, -2.0, 3.0], dtype=torch.bfloat16),
    flags=torch.tensor([True, False]),
    bytes=torch.tensor([1, 2, 255], dtype=torch.uint8),
    counts=counts,
    parameter=torch.nn.Parameter(torch.ones(2)),
)
training = {
    "model": model.state_dict(),
    "layers": [torch.zeros(2), (torch.ones(1),)],
    "epoch": 3, "lr": 0.1, "name": "net", "best": None, "done": False, 5: torch.full((1,), 5.0),
}
torch.save(tensors, folder / "tensors.pt")
torch.save(tensors, folder / "old_form.pt", _use_new_zipfile_serialization=False)
torch.save(training, folder / "training.pt", pickle_protocol=4)
torch.save(torch.nn.Linear(2, 2), folder / "whole_module.pt")
