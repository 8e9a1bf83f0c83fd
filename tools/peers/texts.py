#!/usr/bin/env python3
"""Tokens a second of `strata generate` and of transformers: GPT-2's smallest shape (124M), random weights, greedy.

    python3 -m venv V && V/bin/pip install torch==2.11.0 transformers==4.57.3 safetensors==0.8.0
    V/bin/python tools/peers/texts.py [--rounds=3] [--tokens=64]

(The folder that tools/pytorch prints has no package metadata, by which transformers looks for PyTorch.)

Both sides take turns, each as a process of its own; the table has the median, and behind it the least and the most.
"start to first" is from the command to the end of a text of one token. Nothing else should run on the machine.
"""

import argparse
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PROMPT = 16  # tokens
VOCABULARY = 50257


def prompts(rows):
    """Tokens, different ones in each row."""
    return [[(7919 * (row + 1) * (i + 1)) % VOCABULARY for i in range(PROMPT)] for row in range(rows)]


def make(folder):
    import torch
    import transformers
    torch.manual_seed(1)
    transformers.GPT2LMHeadModel(transformers.GPT2Config()).save_pretrained(folder)


def theirs(folder, rows, tokens):
    """The inner side: loads, writes, prints the seconds of writing."""
    import torch
    import transformers
    torch.set_num_threads(os.cpu_count())
    model = transformers.GPT2LMHeadModel.from_pretrained(folder).eval()
    x = torch.tensor(prompts(rows))
    begin = time.monotonic()
    with torch.no_grad():
        out = model.generate(x, attention_mask=torch.ones_like(x), max_new_tokens=tokens, min_new_tokens=tokens,
                             do_sample=False, eos_token_id=None, pad_token_id=0)
    print("seconds %f" % (time.monotonic() - begin))
    if out.shape[1] != PROMPT + tokens:
        raise SystemExit("transformers wrote %d tokens" % (out.shape[1] - PROMPT))


def run_theirs(folder, rows, tokens):
    """Tokens a second, and the seconds of the whole process."""
    begin = time.monotonic()
    shown = subprocess.run([sys.executable, __file__, "--inner=%s" % folder, "--rows=%d" % rows, "--tokens=%d" % tokens],
                           check=True, capture_output=True, text=True).stdout
    whole = time.monotonic() - begin
    return rows * tokens / float(re.search(r"seconds ([\d.]+)", shown)[1]), whole


def run_ours(strata, folder, rows, tokens, pipe):
    """Rows are one micro-batch, or one for each stage."""
    flags = ["--weights=%s" % folder, "--weights.map=gpt2", "--tokenizer=numbers", "--temperature=0", "--device=cpu",
             "--tokens=%d" % tokens, "--pipe=%d" % pipe, "--eval.batch=%d" % max(1, rows // pipe)]
    flags += ["--prompt=" + " ".join(map(str, prompt)) for prompt in prompts(rows)]
    begin = time.monotonic()
    shown = subprocess.run([strata, "generate", str(ROOT / "models/gpt2.lua"), *flags], check=True, capture_output=True,
                           text=True).stderr
    whole = time.monotonic() - begin
    found = re.search(r"^(\S+) tokens? in .*?, (\S+) a second", shown, re.M)
    if int(found[1].replace(",", "")) != rows * tokens:
        raise SystemExit("strata wrote another number of tokens:\n" + shown)
    return float(found[2].replace(",", "")), whole


def row(title, rates, firsts, reference):
    median = statistics.median(rates)
    ratio = "%.2f" % (median / reference) if reference else "1"
    print("| %s | %.1f (%.1f to %.1f) | %s | %.2f (%.2f to %.2f) |" % (
        title, median, min(rates), max(rates), ratio, statistics.median(firsts), min(firsts), max(firsts)), flush=True)
    return median


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--strata", default=str(ROOT / "bazel-bin/launcher/strata"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rows", type=int, default=1)
    parser.add_argument("--inner")
    options = parser.parse_args()
    if options.inner:
        return theirs(options.inner, options.rows, options.tokens)
    with tempfile.TemporaryDirectory() as folder:
        make(folder)
        print("| | tokens/s | ratio | start to first token, s |\n|---|---|---|---|")
        for rows in [1, 8]:
            sides = {"transformers": lambda tokens, rows=rows: run_theirs(folder, rows, tokens)}
            for pipe in [1, 2]:
                sides["Strata, pipe %d" % pipe] = (
                    lambda tokens, rows=rows, pipe=pipe: run_ours(options.strata, folder, rows, tokens, pipe))
            rates, firsts = {name: [] for name in sides}, {name: [] for name in sides}
            for _ in range(options.rounds):
                for name, run in sides.items():
                    rates[name].append(run(options.tokens)[0])
                    firsts[name].append(run(1)[1])
            reference = None
            for name in sides:
                median = row("%s, batch %d" % (name, rows), rates[name], firsts[name], reference)
                reference = reference or median


if __name__ == "__main__":
    main()
