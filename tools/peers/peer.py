"""One peer of Strata on one workload, started by tools/bench under torch.distributed.run.

    peer.py torch|deepspeed|one|ddp|tensor --model=alexnet|transformer|gpt|resnet|start|empty
            --variant=... --cut=N|time --steps=N

`torch` is torch.distributed.pipelining (variants: gpipe, 1f1b), `deepspeed` its PipelineModule
(variants: parameters, uniform), `one` a single process that runs the whole batch, `ddp`
DistributedDataParallel, where each process has its part of the batch as one micro-batch, `tensor`
torch.distributed.tensor.parallel. --cut: where the second stage begins; `time`: where both stages take
the same time, by layers measured here. The models, sizes and optimizers are those of models/*.lua and
tools/peers/*.lua. The last rank prints a line of JSON, {"first": the loss} after the first step, and
{"seconds": [of every step but the first], "loss": of the last} at the end.
"""

import argparse
import itertools
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


class Words(nn.Module):
    """A table of vectors: of tokens, or, with `scores`, the same table behind the last layer."""

    def __init__(self, weight, scores=False):
        super().__init__()
        self.weight, self.scores = weight, scores

    def forward(self, x):
        return (nn.functional.linear if self.scores else nn.functional.embedding)(x, self.weight)


class Positions(nn.Module):
    def __init__(self, tokens, width):
        super().__init__()
        self.weight = nn.Parameter(0.02 * torch.randn(tokens, width))

    def forward(self, x):
        return x + self.weight


class Attention(nn.Module):
    """Causal, with its norm, dropout and residual. The heads are as many as the projections give, which
    tensor parallelism shares out."""

    def __init__(self, width, heads):
        super().__init__()
        self.norm, self.head = nn.LayerNorm(width), width // heads
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))
        self.dropout = nn.Dropout(0.1)

    def forward(self, x):
        y, (rows, tokens, _) = self.norm(x), x.shape
        q, k, v = (part(y).view(rows, tokens, -1, self.head).transpose(1, 2) for part in (self.q, self.k, self.v))
        y = nn.functional.scaled_dot_product_attention(q, k, v, dropout_p=0.1, is_causal=True)
        return x + self.dropout(self.out(y.transpose(1, 2).reshape(rows, tokens, -1)))


class FeedForward(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.fc, self.proj = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x):
        return x + self.dropout(self.proj(nn.functional.gelu(self.fc(self.norm(x)), approximate="tanh")))


def gpt(tokens=128, words=10000, width=512, heads=8, depth=8):
    table = nn.Parameter(0.02 * torch.randn(words, width))
    blocks = [layer for _ in range(depth) for layer in (Attention(width, heads), FeedForward(width))]
    layers = [Words(table), Positions(tokens, width), nn.Dropout(0.1), *blocks, nn.LayerNorm(width),
              Words(table, scores=True)]
    return Work(layers, cut=11, rows=8, tied=table, clip=1.0,
                x=lambda rows: torch.randint(0, words, (rows, tokens)),
                y=lambda rows: torch.randint(0, words, (rows, tokens)),
                loss=lambda out, y: nn.functional.cross_entropy(out.reshape(-1, words), y.reshape(-1)),
                optimizer=lambda p: torch.optim.AdamW(p, 3e-4))


class Block(nn.Module):
    def __init__(self, inside, outside, stride):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(inside, outside, 3, stride, 1, bias=False), nn.BatchNorm2d(outside),
                                  nn.ReLU(True), nn.Conv2d(outside, outside, 3, 1, 1, bias=False),
                                  nn.BatchNorm2d(outside))
        self.shortcut = nn.Identity() if stride == 1 and inside == outside else nn.Sequential(
            nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside))

    def forward(self, x):
        return nn.functional.relu(self.body(x) + self.shortcut(x), inplace=True)


def resnet():
    """ResNet-18 for images of 32x32. Strata cuts inside blocks; here the nearest end of one counts."""
    layers, width = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU(True)], 64
    for group in range(4):
        for i in range(2):
            layers.append(Block(width, 64 << group, 2 if group and not i else 1))
            width = 64 << group
    layers += [nn.AdaptiveAvgPool2d(1), Flatten(), nn.Linear(512, 10)]
    return Work(layers, cut=10, rows=32, x=lambda rows: torch.randn(rows, 3, 32, 32),
                y=lambda rows: torch.randint(0, 10, (rows,)), loss=nn.functional.cross_entropy,
                optimizer=lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, weight_decay=1e-4))


def start():
    """A layer of next to nothing for each rank."""
    return Work([nn.Linear(8, 8) for _ in range(dist.get_world_size())], cut=1, rows=4,
                x=lambda rows: torch.ones(rows, 8), y=lambda rows: torch.ones(rows, 8),
                loss=nn.functional.mse_loss, optimizer=lambda p: torch.optim.SGD(p, 1e-3))


def empty():
    """Nearly so: torch sends no gradient through a stage without parameters."""
    return Work([nn.Linear(8, 8), nn.Linear(8, 8)], cut=1, rows=256, x=lambda rows: torch.ones(rows, 8),
                y=lambda rows: torch.ones(rows, 8), loss=nn.functional.mse_loss,
                optimizer=lambda p: torch.optim.SGD(p, 1e-3))


class Work:
    """Layers, where the second of two stages begins, the rows of a batch. `tied`: a parameter of the first
    and of the last layer. `clip`: the largest norm of the gradients."""

    def __init__(self, layers, cut, rows, x, y, loss, optimizer, tied=None, clip=None):
        self.layers, self.cut, self.rows, self.tied, self.clip = layers, cut, rows, tied, clip
        self.x, self.y, self.loss, self.optimizer = x, y, loss, optimizer

    def parameters(self):
        return nn.Sequential(*self.layers).parameters()

    def clip_gradients(self, parameters):
        """Also where some are shared out (DTensor), which torch's own function refuses among others."""
        parameters = list(parameters)
        if self.clip and any(hasattr(p, "full_tensor") for p in parameters):
            norms = [p.grad.norm() for p in parameters]
            norm = torch.stack([n.full_tensor() if hasattr(n, "full_tensor") else n for n in norms]).norm()
            for p in parameters if norm > self.clip else []:
                p.grad.mul_(self.clip / norm.item())
        elif self.clip:
            nn.utils.clip_grad_norm_(parameters, self.clip)


def balanced_cut(work, rows):
    """Where the slower of two stages is fastest, by the forward and backward of each layer, the best of
    three times; the first layer gives no gradient of its input. A stage's input is a leaf, so none begins
    with a layer that works in place."""
    x, seconds = work.x(rows), []
    for i, layer in enumerate(work.layers):
        best = float("inf")
        for _ in range(3):
            inside = x.detach().requires_grad_(i > 0 and x.is_floating_point())
            copy = inside.clone()  # layers may work in place
            begin = time.perf_counter()
            out = layer(copy)
            if out.requires_grad:
                out.backward(torch.ones_like(out))
            best = min(best, time.perf_counter() - begin)
        x = out.detach()
        seconds.append(best)
    for parameter in work.parameters():
        parameter.grad = None
    sums = list(itertools.accumulate(seconds))
    cuts = [i for i in range(1, len(sums)) if not getattr(work.layers[i], "inplace", False)]
    cut = [min(cuts, key=lambda i: max(sums[i - 1], sums[-1] - sums[i - 1]))]
    dist.broadcast_object_list(cut, 0)
    return cut[0]


def pipeline_norm(parameters, tied, last):
    """Of the gradients of all stages, a tied one counted once."""
    own = sum(p.grad.pow(2).sum() for p in parameters if not (last and p is tied))
    dist.all_reduce(own)
    return own.sqrt()


def torch_pipelining(work, options, micro_batches):
    """A function that runs one step and returns the mean loss (on the last rank)."""
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
    variant, rank, world = options.variant, dist.get_rank(), dist.get_world_size()
    cut = int(options.cut or work.cut) if options.cut != "time" else balanced_cut(work, work.rows // micro_batches)
    bounds = [0, cut, len(work.layers)] if world == 2 else list(range(world + 1))
    module = nn.Sequential(*work.layers[bounds[rank]:bounds[rank + 1]])
    parameters = list(module.parameters())
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
        elif rank < world - 1:
            schedule.step()
        else:
            schedule.step(target=y, losses=losses)
        if work.tied is not None and (rank == 0 or rank == world - 1):
            dist.all_reduce(work.tied.grad)
        if work.clip:
            scale = (work.clip / pipeline_norm(parameters, work.tied, rank == world - 1)).clamp(max=1.0)
            torch._foreach_mul_([p.grad for p in parameters], scale)
        optimizer.step()
        return sum(loss.item() for loss in losses) / max(1, len(losses))

    return step


def deepspeed_pipeline(work, options, micro_batches):
    import deepspeed
    from deepspeed.pipe import PipelineModule
    # This extension does all-reduces in shared memory. It would be compiled here, but a pipeline does not use it.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed("gloo", dist_init_required=False)
    module = PipelineModule(work.layers, num_stages=dist.get_world_size(), loss_fn=work.loss,
                            partition_method=options.variant, activation_checkpoint_interval=0)
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


def whole_model(work, module, rows):
    """Steps of a module that looks like the whole model."""
    optimizer = work.optimizer(module.parameters())
    x, y = work.x(rows), work.y(rows)

    def step():
        optimizer.zero_grad()
        loss = work.loss(module(x), y)
        loss.backward()
        work.clip_gradients(module.parameters())
        optimizer.step()
        return loss.item()

    return step


def one_process(work, *_):
    return whole_model(work, nn.Sequential(*work.layers), work.rows)


def data_parallel(work, *_):
    module = nn.parallel.DistributedDataParallel(nn.Sequential(*work.layers), gradient_as_bucket_view=True)
    return whole_model(work, module, work.rows // dist.get_world_size())


def tensor_parallel(work, *_):
    """Both ranks have the whole batch; attention is shared by heads, the layers behind it by features."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    module, plan = nn.Sequential(*work.layers), {}
    for name, layer in module.named_children():
        columns, row = {Attention: ("qkv", "out"), FeedForward: (["fc"], "proj")}.get(type(layer), ((), None))
        plan.update({f"{name}.{column}": ColwiseParallel() for column in columns})
        if row:
            plan[f"{name}.{row}"] = RowwiseParallel()
    parallelize_module(module, init_device_mesh("cpu", (dist.get_world_size(),)), plan)
    return whole_model(work, module, work.rows)


PEERS = {"torch": torch_pipelining, "deepspeed": deepspeed_pipeline, "one": one_process,
         "ddp": data_parallel, "tensor": tensor_parallel}
MODELS = {"alexnet": (alexnet, 4), "transformer": (transformer, 4), "gpt": (gpt, 4), "resnet": (resnet, 4),
          "start": (start, 4), "empty": (empty, 256)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("peer", choices=PEERS)
    parser.add_argument("--model", choices=MODELS, required=True)
    parser.add_argument("--variant", default="")
    parser.add_argument("--cut", default="")
    parser.add_argument("--steps", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    dist.init_process_group("gloo")
    torch.manual_seed(1234)
    make, micro_batches = MODELS[options.model]
    step = PEERS[options.peer](make(), options, micro_batches)
    seconds = []
    for _ in range(options.steps + 1):
        dist.barrier()
        start = time.perf_counter()
        loss = step()
        dist.barrier()
        seconds.append(time.perf_counter() - start)
        if len(seconds) == 1 and dist.get_rank() == dist.get_world_size() - 1:
            print(json.dumps({"first": loss}), flush=True)
    if dist.get_rank() == dist.get_world_size() - 1:
        print(json.dumps({"seconds": seconds[1:], "loss": loss}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
