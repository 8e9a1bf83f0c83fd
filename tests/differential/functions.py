"""Every name of torch.nn.functional, and the usual operators of tensors, against PyTorch: results,
what became of the arguments, and gradients.

A case is one call. It leaves out arguments that have defaults and gives others by position or name,
in PyTorch's order. Functions that draw are called where they need not; plans.py has them as layers.
"""

import inspect
import re

import operators
import values
from compare import described, judge
from functional_arguments import GENERATORS
from pytorch import torch

F = torch.nn.functional

# Names in torch.nn.functional that are no functions of tensors for a user, or nothing for Lua.
LEFT_OUT = {
    "no function of tensors": [
        "Optional", "assert_int_or_pair", "boolean_dispatch", "handle_torch_function",
        "has_torch_function", "has_torch_function_unary", "has_torch_function_variadic"],
    "the name without _with_indices has return_indices": [
        name for name in dir(F) if name.endswith("_with_indices")],
    "PyTorch itself wants interpolate": ["upsample", "upsample_bilinear", "upsample_nearest"],
    "products of eight bits or groups, for GPUs": ["grouped_mm", "scaled_grouped_mm", "scaled_mm"],
    "takes a function of Python, and without one it is triplet_margin_loss": [
        "triplet_margin_with_distance_loss"],
    "nn.MultiheadAttention is compared as a layer": ["multi_head_attention_forward"],
    "the same as channel_shuffle": ["native_channel_shuffle"],
    "always draws; compared as a layer in plans.py": ["gumbel_softmax"],
    "draws where its windows lie": ["fractional_max_pool2d", "fractional_max_pool3d"],
}


# Built in, and without a signature in its documentation.
UNDESCRIBED = {"conv_tbc": "input, weight, bias, pad=0"}


def public_names():
    left_out = {name for names in LEFT_OUT.values() for name in names}
    return [name for name in dir(F) if not name.startswith("_") and callable(getattr(F, name))
            and not inspect.isclass(getattr(F, name)) and name not in left_out]


def parameters(name):
    """PyTorch's names of the arguments in its order; None for what has no default."""
    function = getattr(F, name + "_with_indices", getattr(F, name))
    try:
        given = inspect.signature(function).parameters.values()
        return [(p.name, p.default is not p.empty, p.kind is p.KEYWORD_ONLY) for p in given]
    except ValueError:
        inside = UNDESCRIBED.get(name) or re.search(r"\((.*?)\)", function.__doc__, re.S).group(1)
        parts = [part.strip() for part in inside.split(",") if part.strip() != "*"]
        return [(part.split("=")[0].strip(), "=" in part, False) for part in parts]


def generate(chance):
    if chance.random() < 0.35:
        return operators.generate(chance)
    name = chance.choice(public_names())
    args = GENERATORS[name.removesuffix("_")](chance)
    return {"call": "F", "name": name, **arrange(chance, parameters(name), args)}


def arrange(chance, order, args):
    """Leaves out some of the arguments that have defaults, gives a few by position, others by name."""
    known = {name for name, _, _ in order}
    optional = {name for name, has_default, _ in order if has_default} - set(args.get("needed", []))
    args = {name: value for name, value in args.items()
            if name in known and value is not None and (name not in optional or chance.random() < 0.6)}
    positional = []
    for name, _, by_name in order:
        if name not in args or by_name or (name in optional and chance.random() < 0.4):
            break
        positional.append(args.pop(name))
    return {"positional": positional, "named": args}


# The case in Strata.

RUN = """
-- What a function gave: tensors and numbers, those in lists too.
local function results(list, found)
  for _, value in ipairs(list) do
    if type(value) == "table" then results(value, found) else found[#found + 1] = value end
  end
  return found
end

-- `call` is given copies of the leaves, so that it may change them.
function driver.call(leaves, call)
  local copies = {}
  for i, leaf in ipairs(leaves) do copies[i] = leaf:clone():to(driver.device) end
  local given = results({ call(copies) }, {})
  return function(number)
    local sum
    for i, y in ipairs(given) do
      show(number, "result" .. i - 1, y)
      if type(y) == "userdata" and y.requires_grad then
        local part = (y * driver.slopes(y)):sum()
        sum = sum and sum + part or part
      end
    end
    if sum then sum:backward() end
    for i, leaf in ipairs(leaves) do
      show(number, "argument" .. i - 1, copies[i])
      if leaf.grad then show(number, "gradient" .. i - 1, leaf.grad) end
    end
  end
end
"""


def replace(value, change):
    """The value with each tensor in it replaced."""
    if values.is_tensor(value):
        return change(value)
    if isinstance(value, list):
        return [replace(part, change) for part in value]
    if isinstance(value, dict):
        return {name: replace(part, change) for name, part in value.items()}
    return value


def tensors(case):
    found = []
    replace([case["positional"], case["named"]], found.append)
    return found


def texts(case, number):
    leaves = tensors(case)
    names = iter("a[%d]" % (i + 1) for i in range(len(leaves)))
    arguments = ["" + lua(value, names) for value in case["positional"]]
    if case["named"]:
        arguments.append("{%s}" % ", ".join(
            "%s=%s" % (name, lua(value, names)) for name, value in case["named"].items()))
    if case["name"] == "repeat":  # a word of Lua's
        call = '%s["repeat"](%s)' % (arguments[0], ", ".join(arguments))
    elif case["call"] == "F":
        call = "F.%s(%s)" % (case["name"], ", ".join(arguments))
    else:
        call = "%s:%s(%s)" % (arguments[0], case["name"], ", ".join(arguments[1:]))
    yield number, "function() return driver.call({%s}, function(a) return %s end) end" % (
        ", ".join(map(values.lua, leaves)), call)


def lua(value, names):
    if values.is_tensor(value):
        return next(names)
    if isinstance(value, list):
        return "{%s}" % ", ".join(lua(part, names) for part in value)
    return values.lua(value)


# The case in PyTorch.

def expected(case):
    leaves = [values.make(leaf) for leaf in tensors(case)]
    copies = [leaf.clone() for leaf in leaves]
    rest = iter(copies)
    args = replace(case["positional"], lambda _: next(rest))
    named = replace(case["named"], lambda _: next(rest))
    for name, value in named.items():
        if name == "dtype":
            named[name] = getattr(torch, value)
    try:
        given = results([function(case)(*args, **named)], [])
        found = dict(("result%d" % i, y) for i, y in enumerate(given))
        parts = [(y * values.slopes(y)).sum() for y in given if isinstance(y, torch.Tensor) and y.requires_grad]
        if parts:
            sum(parts[1:], parts[0]).backward()
    except (RuntimeError, ValueError, TypeError, AssertionError, IndexError, NotImplementedError,
            ZeroDivisionError, OverflowError) as error:
        return "%s: %s" % (type(error).__name__, error)
    for i, leaf in enumerate(leaves):
        found["argument%d" % i] = copies[i]
        if leaf.grad is not None:
            found["gradient%d" % i] = leaf.grad
    return {name: described(x) for name, x in found.items()}


def function(case):
    places = [F, torch, torch.Tensor] if case["call"] == "F" else [torch.Tensor, torch]
    return next(getattr(place, case["name"]) for place in places if case["name"] in dir(place))


def results(given, found):
    for value in given:
        if isinstance(value, (list, tuple)):
            results(value, found)
        elif value is not None:
            found.append(value)
    return found


ACCEPTED = [(re.compile("Output size is too small"),
             "an output without elements: LibTorch's kernel, chosen by the number of threads, refuses or not")]
REASONS = []


def verdict(case, outcomes):
    return judge(expected(case), outcomes[0], REASONS, ACCEPTED)
