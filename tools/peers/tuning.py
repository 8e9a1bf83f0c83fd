#!/usr/bin/env python3
"""LoRA on a Llama, Strata beside transformers with PEFT: losses, seconds a step, memory, start, sizes of saves.

    tools/peers/tuning.py [--shapes=tiny,small] [--precisions=float32,bf16] [--threads=1,2] [--rounds=3] [--steps=20]

One process each, the same weights, tokens, order and first matrices A. bf16 is, in PEFT, what its users have: the frozen
weights in bf16, adapters in float32, autocast. Both sides take turns; a ratio is theirs over ours, of medians. Processor
seconds a step are the difference of two runs, divided by the steps that one has more; beside other programs they say
more than the clock, with one thread. "start" is from the command to the end of the first step.
"""

import argparse
import json
import os
import pathlib
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).absolute().parent.parent.parent
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "tools/peers")]
SHAPES = {  # name: dim, depth, heads, kv_heads, hidden, vocab, rows, length
    "tiny": (64, 5, 8, 4, 172, 512, 4, 128),
    "small": (512, 8, 8, 4, 1376, 8192, 4, 512),
}


# The training with transformers and PEFT, which runs in a process of its own

def config_of(shape):
    import transformers
    dim, depth, heads, kv_heads, hidden, vocab, _, _ = SHAPES[shape]
    return transformers.LlamaConfig(
        vocab_size=vocab, hidden_size=dim, intermediate_size=hidden, num_hidden_layers=depth,
        num_attention_heads=heads, num_key_value_heads=kv_heads, rms_norm_eps=1e-5, initializer_range=0.05)


def adapters(model):
    import peft
    names = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    return peft.get_peft_model(model, peft.LoraConfig(r=8, lora_alpha=16, lora_dropout=0.0, target_modules=names))


def make(shape, folder, steps):
    """The weights, the first adapters and the tokens, from which both begin."""
    import numpy as np
    import torch
    import transformers
    torch.manual_seed(0)
    transformers.LlamaForCausalLM(config_of(shape)).save_pretrained(folder / "base")
    adapters(transformers.AutoModelForCausalLM.from_pretrained(folder / "base")).save_pretrained(folder / "begin")
    _, _, _, _, _, vocab, rows, length = SHAPES[shape]
    tokens = np.random.default_rng(0).zipf(1.3, (steps * rows, length + 1)) % vocab
    np.save(folder / "x.npy", tokens[:, :-1].astype(np.int64))
    np.save(folder / "y.npy", tokens[:, 1:].astype(np.int64))


def theirs(shape, folder, precision, threads, steps):
    import contextlib
    import numpy as np
    import peft
    import torch
    import transformers
    torch.set_num_threads(threads)
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    model = transformers.AutoModelForCausalLM.from_pretrained(folder / "base", dtype=dtype)
    model = peft.PeftModel.from_pretrained(model, folder / "begin", is_trainable=True)
    model.train()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, 1e-3, weight_decay=0.01)
    x, y = (torch.from_numpy(np.load(folder / name)) for name in ["x.npy", "y.npy"])
    rows = SHAPES[shape][6]
    seconds, losses = [], []
    for step in range(steps):
        begin = time.perf_counter()
        part = slice(step * rows, (step + 1) * rows)
        half = torch.autocast("cpu", torch.bfloat16) if precision == "bf16" else contextlib.nullcontext()
        with half:
            logits = model(x[part], use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), y[part].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        seconds.append(time.perf_counter() - begin)
        if step == 0:
            print("first step", flush=True)
    model.save_pretrained(folder / "theirs")
    torch.save(optimizer.state_dict(), folder / "theirs/optimizer.pt")
    print(json.dumps({"seconds": seconds, "losses": losses, "memory": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}))


# Both sides, measured

def run_theirs(options, folder, precision, threads, environment):
    import workloads
    line = [sys.executable, __file__, f"--inner={folder}", f"--shapes={options.shape}", f"--precisions={precision}",
            f"--threads={threads}", f"--steps={options.steps}"]
    _, output, start = workloads.run(line, {**environment, "OMP_NUM_THREADS": str(threads)}, until="^first step")
    return {**json.loads(output.splitlines()[-1]), "start": start, "bytes": size_of(folder / "theirs")}


def run_ours(options, folder, precision, threads, environment):
    import workloads
    names = ["dim", "depth", "heads", "kv_heads", "hidden", "vocab", "rows"]
    shape = [f"--{name}={value}" for name, value in zip(names, SHAPES[options.shape])]
    log, saves = folder / "log", folder / "ours"
    subprocess.run(["rm", "-rf", str(saves), str(log)], check=True)
    line = [options.strata, "train", str(ROOT / "tools/peers/tuning.lua"), f"--folder={folder}", *shape, "--device=cpu",
            f"--precision={precision}", f"--threads={threads}", f"--steps={options.steps}", f"--log={log}",
            f"--allow_read={folder}", f"--save.dir={saves}", "--print_every=1", *options.flags]
    memory, _, start = workloads.run(line, environment, until="^step +1/")
    records = [json.loads(text) for text in log.read_text().splitlines()]
    records = [record for record in records if "seconds" in record and "loss" in record]
    return {"seconds": [record["seconds"] for record in records], "losses": [record["loss"] for record in records],
            "memory": memory, "start": start, "bytes": size_of(saves)}


def environment_with(folders):
    """For their side: with the folders of tools/pytorch and tools/peft."""
    return {**os.environ, "PYTHONPATH": ":".join([str(ROOT / "tests/documents"), *folders]),
            "PYTHONDONTWRITEBYTECODE": "1", "PYTHONWARNINGS": "ignore", "TRANSFORMERS_VERBOSITY": "error",
            "HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}


def size_of(folder):
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def processor_seconds():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def with_processor_seconds(run, options, *arguments):
    """What run() measures of a run, with the processor seconds of a step."""
    few, many = 2, options.steps
    begin = processor_seconds()
    options.steps = few
    run(options, *arguments)
    middle = processor_seconds()
    options.steps = many
    measured = run(options, *arguments)
    return {**measured, "processor": (processor_seconds() - 2 * middle + begin) / (many - few)}


def measure(options, precision, threads, folder, environment):
    sides = {"ours": run_ours, "theirs": run_theirs}
    rounds = [{side: with_processor_seconds(run, options, folder, precision, threads, environment)
               for side, run in sides.items()} for _ in range(options.rounds)]

    def median(side, of):
        return statistics.median(of(one[side]) for one in rounds)
    step = {side: median(side, lambda one: statistics.median(one["seconds"][2:])) for side in sides}
    processor = {side: median(side, lambda one: one["processor"]) for side in sides}
    start = {side: median(side, lambda one: one["start"]) for side in sides}
    memory = {side: median(side, lambda one: one["memory"]) for side in sides}
    size = {side: rounds[0][side]["bytes"] for side in sides}
    apart = max(abs(a - b) for a, b in zip(rounds[0]["ours"]["losses"], rounds[0]["theirs"]["losses"]))
    print("| %s, %s, %d | %.1e | %.3f | %.2f | %.2f | %.0f / %.0f | %.1f / %.1f | %.0f / %.0f |" % (
        options.shape, precision, threads, apart, step["ours"], step["theirs"] / step["ours"],
        processor["theirs"] / processor["ours"], *(memory[side] / 2**20 for side in sides), *(start[side] for side in sides),
        *(size[side] / 2**10 for side in sides)), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--strata", default=str(ROOT / "bazel-bin/launcher/strata"))
    for name, default in [("shapes", "tiny,small"), ("precisions", "float32,bf16"), ("threads", "1,2"), ("flags", "")]:
        parser.add_argument("--" + name, default=default, type=lambda text: [one for one in text.split(",") if one])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--inner")
    parser.add_argument("--make")
    options = parser.parse_args()
    if options.make:
        return make(options.shapes[0], pathlib.Path(options.make), options.steps)
    if options.inner:
        return theirs(options.shapes[0], pathlib.Path(options.inner), options.precisions[0], int(options.threads[0]),
                      options.steps)
    folders = [subprocess.run([ROOT / "tools" / name], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
               for name in ["pytorch", "peft"]]
    environment = environment_with(folders)
    print("| shape, precision, threads | losses apart | ours, s a step | ratio | of processor seconds | MiB, ours / theirs "
          "| start, s | save, KiB |\n|---|---|---|---|---|---|---|---|")
    for options.shape in options.shapes:
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([sys.executable, __file__, f"--make={folder}", f"--shapes={options.shape}",
                            f"--steps={options.steps}"], check=True, env=environment)
            for precision in options.precisions:
                for threads in options.threads:
                    measure(options, precision, int(threads), pathlib.Path(folder), environment)


if __name__ == "__main__":
    main()
