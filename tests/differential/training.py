"""A job that trains, as Lua's text and as its twin in PyTorch: one process that goes through all
micro-batches one after the other.

A job is described by: layers (each {"nn": a layer as layers.py has them}, {"chain": methods of the
tensor}, {"draw": a random function}, {"own": width}, {"skip": key}, {"join": key, "how"}, {"cut"}; the
first may have "tied", a key), loss, input and target (tensors of a micro-batch), micro_batches (of
all replicas), replicas, steps, seed, optimizer, lr_schedule, clip, freeze, and perhaps precision.
"""

import contextlib

import layers
import values
from compare import AFTER_UPDATES, described, judge, rounding
from pytorch import seed_forward, torch

nn = torch.nn
ERRORS = (RuntimeError, ValueError, TypeError, AssertionError, IndexError, NotImplementedError,
          AttributeError, ZeroDivisionError)

CHANNELS_LAST = {"memory_format": "channels_last"}

RUN = """
-- A layer of a user's own.
driver.Scale = strata.layer {
  name = "Scale",
  init = function(self, width)
    self.weight = self:parameter { width, fill = 0.5 }
    self.bias = self:parameter { width, fill = 0.25 }
  end,
  forward = function(self, x) return x * self.weight + self.bias end,
}

-- All steps, and then what the last stage gives for another batch.
function driver.steps(job, steps, plan, batch)
  local engine = job:start(plan)
  return driver.closing(engine, function(number)
    for step = 1, steps do show(number, "loss" .. step, engine:train_batch()) end
    engine:save()
    local i = 1000
    local loss, outputs = engine:eval_batch(function() i = i + 1; return batch(i) end, { outputs = true })
    show(number, "evaluated", loss)
    for m, y in ipairs(outputs) do show(number, "output" .. m - 1, type(y) == "table" and y[1] or y) end
  end)
end

-- All steps, with what the log would say of them.
function driver.trains(job, plan)
  job:plan(plan)
  return function(number)
    for i, step in ipairs(job:train(plan)) do
      show(number, "loss" .. i, step.loss)
      show(number, "norm" .. i, step.grad_norm)
      show(number, "lr" .. i, step.lr)
    end
  end
end
"""


# In Lua.

def layer_text(layer):
    if "chain" in layer:
        return "function(x) return x%s end" % "".join(
            ":%s(%s)" % (name, ", ".join(map(values.lua, args))) for name, *args in layer["chain"])
    if "parts" in layer:
        width, count = layer["width"], layer["parts"]
        parts = ["x:narrow(1, %d, %d)" % (width * i, width) for i in range(count)]
        return "function(x) return %s%s end" % (", ".join(parts), ":%s()" % layer["last"] if layer["last"] else "")
    if "draw" in layer:
        return "function(x) return F.%s(x, %s) end" % (layer["draw"], values.lua(layer["named"]))
    if "own" in layer:
        return "driver.Scale{%d}" % layer["own"]
    if "skip" in layer:
        return 'strata.skip{"%s"}' % layer["skip"]
    if "join" in layer:
        return 'strata.join{"%s", how="%s"%s}' % (
            layer["join"], layer["how"], ", dim=%d" % layer["dim"] if "dim" in layer else "")
    if "cut" in layer:
        return "strata.cut()"
    inner = layers.constructor(layer["nn"])
    if "tied" not in layer:
        return inner
    forward = ', forward=function(layer, x) return x:matmul(layer.weight:t()) end' if "turned" in layer else ""
    return 'strata.tied{"%s", %s, weight="weight"%s}' % (layer["tied"], inner, forward)


def optimizer_text(optimizer):
    options = {name: value for name, value in optimizer.items() if name not in ("type", "groups")}
    if "groups" in optimizer:
        options["groups"] = optimizer["groups"]
    return "{ %s }" % values.call([optimizer["type"]], options)


def schedule_text(schedule):
    if schedule["type"] == "function":
        return "function(step) return 1 / (1 + step) end"
    options = {name: value for name, value in schedule.items() if name != "type"}
    return "{ %s }" % values.call([schedule["type"]], options)


def loss_text(loss):
    if loss["type"] == "function":
        return "function(y, t) return (y - t):square():sum(), y.shape[1] end"
    return layers.constructor({"positional": [], **loss})


def job_text(job, **more):
    """strata.job{...}, with further keys in Lua, and its data function."""
    def drawn(spec):
        if isinstance(spec, list):
            return "{%s}" % ", ".join(map(drawn, spec))
        text = "T" + values.lua({name: part for name, part in spec.items() if name not in ("tensor", "k", "signs")})
        return text.replace("{", "{k=17 * i + %d, " % spec["k"], 1) + (":mul(2):sub(1)" if "signs" in spec else "")
    keys = {
        "layers": "{\n  %s }" % ",\n  ".join(map(layer_text, job["layers"])), "loss": loss_text(job["loss"]),
        "data": "function(i) return %s, %s end" % (drawn(job["input"]), drawn(job["target"])),
        "batch": "{ micro_batches = %d, micro_batch_size = %d }" % (
            job["micro_batches"] // job["replicas"], job["input"]["shape"][0]),
        "optimizer": optimizer_text(job["optimizer"]), "steps": job["steps"], "seed": job["seed"],
        "clip": values.lua(job["clip"]), "freeze": values.lua(job["freeze"]),
        "device": "driver.device", "threads": 1, "tie_check": 1, "hang_timeout": 100,
    }
    keys.update(more)
    if job["lr_schedule"]:
        keys["lr_schedule"] = schedule_text(job["lr_schedule"])
    if "precision" in job:
        keys["precision"] = optimizer_text(job["precision"])
    return "strata.job {\n %s }" % ",\n ".join("%s = %s" % pair for pair in keys.items()), keys["data"]


# In PyTorch.

class Scale(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.full((width,), 0.5))
        self.bias = nn.Parameter(torch.full((width,), 0.25))

    def forward(self, x):
        return x * self.weight + self.bias


class Network:
    """The modules of a job, each with its index among the layers."""

    exact = False  # whether it computes in float64, from the same initial values and data

    def __init__(self, job):
        self.job = job
        self.descriptions = [layer for layer in job["layers"] if "cut" not in layer]
        self.modules, tied = [], {}
        for i, layer in enumerate(self.descriptions):
            torch.manual_seed(job["seed"] + i)
            module = Scale(layer["own"]) if "own" in layer else layers.module(layer["nn"]) if "nn" in layer else None
            if getattr(module, "inplace", False):
                module.inplace = False  # a wish, which a layer grants itself where it changes nothing
            if "tied" in layer:
                first = tied.setdefault(layer["tied"], module)
                module.weight = first.weight
            self.modules.append(module)
        for i in job["freeze"] or []:
            if self.modules[i]:
                self.modules[i].requires_grad_(False)
        for module in self.modules if self.exact else []:
            if module:
                module.double()

    def make(self, spec):
        x = values.make(spec)
        if "signs" in spec:
            return 2 * x - 1
        return x.double() if self.exact and x.is_floating_point() else x

    def train(self, training):
        for module in self.modules:
            if module:
                module.train(training)

    def named(self, what):
        """Parameters or buffers by the names that a save has; tied ones with their first layer."""
        found, seen = {}, set()
        for i, module in enumerate(self.modules):
            for name, tensor in getattr(module, "named_" + what)() if module else []:
                if id(tensor) not in seen:
                    seen.add(id(tensor))
                    found["%d.%s" % (i, name)] = tensor
        return found

    def __call__(self, i, drawn):
        """The outputs for micro-batch i; what is random draws as for micro-batch `drawn`."""
        chain, kept = [self.make({**self.job["input"], "k": 17 * i + self.job["input"]["k"]})], {}
        for index, (layer, module) in enumerate(zip(self.descriptions, self.modules)):
            seed_forward(self.job["seed"], drawn, index)
            if "skip" in layer:
                kept[layer["skip"]] = chain[0].clone()  # whatever works in place later
            elif "join" in layer:
                other = kept[layer["join"]]
                chain = [chain[0] + other] if layer["how"] == "add" else [torch.cat([chain[0], other], layer["dim"])]
            else:
                chain = [self._one(layer, module, chain[0])]
                if "parts" in layer:
                    chain = [*chain[0]]
        return chain

    @staticmethod
    def _one(layer, module, x):
        if "parts" in layer:
            *first, last = x.split(layer["width"], 1)
            return [*first, getattr(last, layer["last"])() if layer["last"] else last]
        if "chain" in layer:
            x = x.clone()  # what a function does in place changes nothing for other layers
            for name, *args in layer["chain"]:
                if args == [CHANNELS_LAST]:
                    x = getattr(x, name)(memory_format=torch.channels_last)
                else:
                    x = getattr(x, name)(*args)
            return x
        if "draw" in layer:
            return getattr(nn.functional, layer["draw"])(x, **layer["named"])
        return x.matmul(module.weight.t()) if "turned" in layer else module(x)

    def targets(self, i):
        target = self.job["target"]
        specs = target if isinstance(target, list) else [target]
        return [self.make({**spec, "k": 17 * i + spec["k"]}) for spec in specs]

    def loss(self, numbers, drawn):
        """Over all micro-batches together, and the first of their outputs."""
        made = list(map(self, numbers, drawn))
        outputs, kind = [first for first, *_ in made], self.job["loss"]["type"]
        ys = [torch.cat(parts, 1 if kind == "CTCLoss" else 0) for parts in zip(*made)]
        ts = [torch.cat(parts) for parts in zip(*map(self.targets, numbers))]
        if len(ys) > 1 or len(ts) > 1:
            given = {"GaussianNLLLoss": [ys[0], ts[0], ys[-1]], "TripletMarginLoss": ys}.get(kind, [*ys, *ts])
            return getattr(nn, kind)(**self.job["loss"]["named"])(*given), outputs
        y, t = ys[0], ts[0]
        if self.job["loss"]["type"] == "function":
            return (y - t).square().sum() / len(y), outputs
        named = dict(self.job["loss"]["named"])
        if "weight" in named:
            named["weight"] = torch.tensor(named["weight"], dtype=y.dtype)
        if (t == named.get("ignore_index", -100)).all():
            return y.sum() * 0, outputs  # where nothing counts PyTorch has not-a-number
        return getattr(nn, self.job["loss"]["type"])(**named)(y, t), outputs


def default_lr(kind):
    return {"rmsprop": 0.01, "adagrad": 0.01, "adadelta": 1.0, "nadam": 2e-3, "adamax": 2e-3,
            "adafactor": 0.01}.get(kind, 1e-3)


def optimizer_of(network):
    """torch.optim's, with a group for each of the job's, and the learning rate of each group."""
    given = network.job["optimizer"]
    common = {name: value for name, value in given.items() if name not in ("type", "groups")}
    kind = next(getattr(torch.optim, name) for name in dir(torch.optim) if name.lower() == given["type"])
    common.setdefault("lr", default_lr(given["type"]))
    groups, rest = [[] for _ in given.get("groups", [])], []
    for name, parameter in network.named("parameters").items():
        if not parameter.requires_grad:
            continue
        fits = [g for g, group in enumerate(given.get("groups", [])) if int(name.split(".")[0]) in group["layers"]]
        (groups[fits[0]] if fits else rest).append(parameter)
    listed = [{**common, "params": rest}]
    for group, parameters in zip(given.get("groups", []), groups):
        listed.append({**common, **{n: v for n, v in group.items() if n != "layers"}, "params": parameters})
    listed = [group for group in listed if group["params"]]
    return kind(listed, **common), [group["lr"] for group in listed]


def factors(schedule, steps):
    """The factors of the learning rate, as PyTorch's schedulers have them."""
    if not schedule:
        return [1.0] * steps
    kind, warmup = schedule["type"], schedule.get("warmup", 0)
    of = torch.optim.lr_scheduler
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    length, final = schedule.get("steps") or max(1, steps - warmup), schedule.get("final", 0.0)

    def rising(count):
        return of.LinearLR(optimizer, 1 / (count + 1), 1.0, count)
    main = {"constant": lambda: of.ConstantLR(optimizer, 1.0, 1),
            "warmup": lambda: rising(schedule["steps"]),
            "linear": lambda: of.LinearLR(optimizer, 1.0, final, length),
            "cosine": lambda: of.CosineAnnealingLR(optimizer, length, final),
            "step": lambda: of.StepLR(optimizer, schedule["every"], schedule.get("gamma", 0.1)),
            "polynomial": lambda: of.PolynomialLR(optimizer, length, schedule.get("power", 1.0)),
            "multi_step": lambda: of.MultiStepLR(optimizer, schedule["milestones"], schedule.get("gamma", 0.1)),
            "exponential": lambda: of.ExponentialLR(optimizer, schedule["gamma"]),
            "cosine_restarts": lambda: of.CosineAnnealingWarmRestarts(
                optimizer, schedule["T_0"], schedule.get("T_mult", 1), final),
            "one_cycle": lambda: of.OneCycleLR(
                optimizer, 1.0, steps, cycle_momentum=False,
                **{name: value for name, value in schedule.items() if name != "type"}),
            "function": lambda: of.LambdaLR(optimizer, lambda step: 1 / (1 + step))}[kind]
    scheduler = main() if not warmup else of.SequentialLR(optimizer, [rising(warmup), main()], [warmup])
    found = []
    for step in range(steps):
        over = kind == "cosine" and step - warmup >= length  # PyTorch's would rise again
        found.append(final if over else optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return found


def train(job):
    """Losses, norms and rates of all steps, and the network and optimizer after them."""
    network = Network(job)
    optimizer, rates = optimizer_of(network)
    named = network.named("parameters")
    learning = [parameter for parameter in named.values() if parameter.requires_grad]
    found = {}
    for step, factor in enumerate(factors(job["lr_schedule"], job["steps"])):
        optimizer.zero_grad()
        first = step * job["micro_batches"]
        loss, _ = network.loss(*2 * [range(first, first + job["micro_batches"])])
        loss.backward()
        norm = nn.utils.clip_grad_norm_(learning, job["clip"] or float("inf")) if learning else 0.0
        for group, rate in zip(optimizer.param_groups, rates):
            group["lr"] = rate * factor
        optimizer.step()
        found["loss%d" % (step + 1)] = loss.item()
        found["norm%d" % (step + 1)] = float(norm)
        found["lr%d" % (step + 1)] = job["optimizer"].get("lr", default_lr(job["optimizer"]["type"])) * factor
    return network, optimizer, found


def saved(network, optimizer):
    """What a save has, by its names there."""
    found = {"saved." + name: tensor for what in ("parameters", "buffers")
             for name, tensor in network.named(what).items()}
    for name, parameter in network.named("parameters").items():
        for moment, tensor in optimizer.state.get(parameter, {}).items():
            if moment not in ("step", "mu_product") and tensor is not None:
                found["saved.%s#%s" % (name, moment)] = tensor
    return found


def expected_training(job):
    """What driver.trains shows, and a save has."""
    try:
        network, optimizer, found = train(job)
    except ERRORS as error:
        return "%s: %s" % (type(error).__name__, error)
    return {name: described(x) for name, x in {**found, **saved(network, optimizer)}.items()}


def expected_steps(job):
    """What driver.steps shows, and a save has."""
    try:
        network, optimizer, steps = train(job)
        found = {name: value for name, value in steps.items() if name.startswith("loss")}
        found.update(saved(network, optimizer))
        network.train(False)
        with torch.no_grad():
            numbers = range(1001, 1001 + job["micro_batches"])
            loss, outputs = network.loss(numbers, list(range(job["micro_batches"])))
    except ERRORS as error:
        return "%s: %s" % (type(error).__name__, error)
    found["evaluated"] = loss.item()
    found.update(("output%d" % m, y) for m, y in enumerate(outputs))
    return {name: described(x) for name, x in found.items()}


@contextlib.contextmanager
def in_double():
    """Twins made within compute in float64."""
    Network.exact = True
    try:
        yield
    finally:
        Network.exact = False


def judge_twin(twin, job, outcome):
    """The outcome beside `twin(job)`. What lies farther apart than the tolerance is rounding where it is
    as near to the twin in float64 as PyTorch's own float32 is: sums that cancel, behind a norm say."""
    theirs = twin(job)
    judged = judge(theirs, outcome, tolerance=AFTER_UPDATES)
    if judged.what != "wrong" or isinstance(theirs, str):
        return judged
    with in_double():
        truth = twin(job)
    return judged if isinstance(truth, str) else rounding(truth, theirs, outcome.values) or judged
