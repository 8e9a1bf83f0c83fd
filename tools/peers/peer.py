"""One peer of Strata on one workload, started by tools/bench under torch.distributed.run.

    peer.py torch|deepspeed|one --model=alexnet|transformer|empty --variant=... --steps=N

`torch` is torch.distributed.pipelining (variants: gpipe, 1f1b), `deepspeed` its PipelineModule
(variants: parameters, uniform), `one` a single process that runs the whole batch. The models, sizes
and optimizers are those of models/*.lua and tools/peers/empty.lua. The last rank prints a line of JSON:
{"seconds": [of every step but the first], "loss": of the last}.
"""

import argparse
import json
import os
import time

import torch
import torch.distributed as dist
from torch import nn


class Flatten(nn.Module):
    def forward(self, x):
        return x.flatten(1)


class Decoder(nn.TransformerDecoderLayer):
    def forward(self, h):
        return super().forward(h, h)


def alexnet():
    layers = [
        nn.Conv2d(3, 64, 11, 4, 2), nn.ReLU(True), nn.MaxPool2d(3, 2),
        nn.Conv2d(64, 192, 5, padding=2), nn.ReLU(True), nn.MaxPool2d(3, 2),
        nn.Conv2d(192, 384, 3, padding=1), nn.ReLU(True),
        nn.Conv2d(384, 256, 3, padding=1), nn.ReLU(True),
        nn.Conv2d(256, 256, 3, padding=1), nn.ReLU(True),
        nn.MaxPool2d(3, 2), nn.AdaptiveAvgPool2d((6, 6)), Flatten(),
        nn.Dropout(), nn.Linear(9216, 4096), nn.ReLU(True),
        nn.Dropout(), nn.Linear(4096, 4096), nn.ReLU(True), nn.Linear(4096, 10),
    ]
    return Work(layers, cut=19, rows=32, x=lambda rows: torch.randn(rows, 3, 224, 224),
                y=lambda rows: torch.randint(0, 10, (rows,)),
                loss=nn.functional.cross_entropy,
                optimizer=lambda p: torch.optim.SGD(p, 1e-3, momentum=0.9))


def transformer(tokens=32, words=10000):
    layers = [nn.Embedding(words, 512), *[Decoder(512, 8) for _ in range(8)],
              nn.LayerNorm(512), nn.Linear(512, words)]
    return Work(layers, cut=5, rows=32, x=lambda rows: torch.randint(0, words, (rows, tokens)),
                y=lambda rows: torch.randint(0, words, (rows, tokens)),
                loss=lambda out, y: nn.functional.cross_entropy(out.reshape(-1, words), y.reshape(-1)),
                optimizer=lambda p: torch.optim.Adam(p, 1e-3))


def empty():
    """Nearly so: torch sends no gradient through a stage without parameters."""
    return Work([nn.Linear(8, 8), nn.Linear(8, 8)], cut=1, rows=256, x=lambda rows: torch.ones(rows, 8),
                y=lambda rows: torch.ones(rows, 8), loss=nn.functional.mse_loss,
                optimizer=lambda p: torch.optim.SGD(p, 1e-3))


class Work:
    def __init__(self, layers, cut, rows, x, y, loss, optimizer):
        self.layers, self.cut, self.rows = layers, cut, rows
        self.x, self.y, self.loss, self.optimizer = x, y, loss, optimizer


def torch_pipelining(work, variant, micro_batches):
    """A function that runs one step and returns the mean loss (on the last rank)."""
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
    rank, world = dist.get_rank(), dist.get_world_size()
    module = nn.Sequential(*(work.layers[work.cut:] if rank else work.layers[:work.cut]))
    optimizer = work.optimizer(module.parameters())
    stage = PipelineStage(module, rank, world, torch.device("cpu"))
    schedule = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}[variant](stage, micro_batches,
                                                                    loss_fn=work.loss)
    x, y = work.x(work.rows), work.y(work.rows)

    def step():
        optimizer.zero_grad()
        losses = []
        if rank == 0:
            schedule.step(x)
        else:
            schedule.step(target=y, losses=losses)
        optimizer.step()
        return sum(loss.item() for loss in losses) / max(1, len(losses))

    return step


def deepspeed_pipeline(work, variant, micro_batches):
    import deepspeed
    from deepspeed.pipe import PipelineModule
    # For all-reduces in shared memory; it would be compiled here, and a pipeline has none.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed("gloo", dist_init_required=False)
    module = PipelineModule(work.layers, num_stages=dist.get_world_size(), loss_fn=work.loss,
                            partition_method=variant, activation_checkpoint_interval=0)
    rows = work.rows // micro_batches
    engine, *_ = deepspeed.initialize(
        model=module, optimizer=work.optimizer(module.parameters()),
        config={"train_batch_size": work.rows, "train_micro_batch_size_per_gpu": rows,
                "gradient_accumulation_steps": micro_batches, "steps_per_print": 1 << 30})
    batch = work.x(rows), work.y(rows)

    def batches():
        while True:
            yield batch

    data = batches()
    return lambda: float(engine.train_batch(data))


def one_process(work, *_):
    module = nn.Sequential(*work.layers)
    optimizer = work.optimizer(module.parameters())
    x, y = work.x(work.rows), work.y(work.rows)

    def step():
        optimizer.zero_grad()
        loss = work.loss(module(x), y)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


PEERS = {"torch": torch_pipelining, "deepspeed": deepspeed_pipeline, "one": one_process}
MODELS = {"alexnet": (alexnet, 4), "transformer": (transformer, 4), "empty": (empty, 256)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("peer", choices=PEERS)
    parser.add_argument("--model", choices=MODELS, required=True)
    parser.add_argument("--variant", default="")
    parser.add_argument("--steps", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    dist.init_process_group("gloo")
    torch.manual_seed(1234)
    make, micro_batches = MODELS[options.model]
    step = PEERS[options.peer](make(), options.variant, micro_batches)
    seconds = []
    for _ in range(options.steps + 1):
        dist.barrier()
        start = time.perf_counter()
        loss = step()
        dist.barrier()
        seconds.append(time.perf_counter() - start)
    if dist.get_rank() == dist.get_world_size() - 1:
        print(json.dumps({"seconds": seconds[1:], "loss": loss}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
