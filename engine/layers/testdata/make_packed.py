"""Writes packed.json: a matrix in NF4 and in int8 as the package bitsandbytes (0.50.2, on the CPU) packs and reads it.

    python make_packed.py > packed.json

The values are float32 numbers that bfloat16 and float16 have too, and some lie in the middle of two codes. A row has 70
elements, so that blocks of NF4 go on in the next row, and the last block is short.
"""

import importlib.util
import json
import sys
import types

import torch

if importlib.util.find_spec("torch._inductor") is None:  # a small copy of torch: bitsandbytes asks for its compiler
    torch._dynamo = sys.modules["torch._dynamo"] = types.ModuleType("torch._dynamo")
    torch._dynamo.disable = lambda function=None, recursive=True, **_: function
    torch.compile = lambda function=None, **_: function or (lambda inside: inside)

from bitsandbytes import functional  # noqa: E402

ROWS, COLUMNS = 5, 70


def values():
    i = torch.arange(ROWS * COLUMNS)
    exact = ((i * 37 + i * i * 11 % 101) % 251 - 125).float() / 512 * 2.0 ** -(i // 64 % 4).float()
    exact[70:140] = 0  # a row of zeros, and a block of zeros within it
    return exact.view(ROWS, COLUMNS)


def main():
    w = values()
    codes, state = functional.quantize_4bit(w, quant_type="nf4", blocksize=64)
    nf4 = functional.dequantize_4bit(codes, state)
    rows, largest, _ = functional.int8_vectorwise_quant(w.half())
    rows[largest == 0] = 0  # 0 / 0 there
    int8 = functional.int8_vectorwise_dequant(rows, largest)
    print(json.dumps({
        "values": w.flatten().tolist(),
        "nf4": {
            "codes": codes.flatten().tolist(),
            "scales": state.absmax.tolist(),
            "dense": nf4.flatten().tolist(),
        },
        "int8": {
            "codes": (rows.int() & 255).flatten().tolist(),
            "scales": largest.tolist(),
            "dense": int8.flatten().tolist(),
        },
    }))


if __name__ == "__main__":
    main()
