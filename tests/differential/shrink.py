"""Makes a failing case smaller while it fails in the same way: leaves out options and elements of
lists, and brings numbers nearer to 1."""

import copy

ROUNDS = 60
AT_ONCE = 10  # candidates in one process


def shrink(case, fails):
    """The smallest case found for which fails([case, ...]) (a list of booleans) holds."""
    for _ in range(ROUNDS):
        candidates = list(smaller(case))
        found = None
        for begin in range(0, len(candidates), AT_ONCE):
            group = candidates[begin:begin + AT_ONCE]
            found = next((c for c, failed in zip(group, fails(group)) if failed), None)
            if found:
                break
        if not found:
            return case
        case = found
    return case


def smaller(case):
    """Copies of the case that are one step simpler."""
    for path, simpler in _steps(case, ()):
        changed = copy.deepcopy(case)
        holder = changed
        for key in path[:-1]:
            holder = holder[key]
        if simpler is None:
            del holder[path[-1]]
        else:
            holder[path[-1]] = simpler
        yield changed


def _steps(value, path):
    """Places within the value, each with what may stand there instead (None: nothing)."""
    if isinstance(value, dict):
        for key in value:
            if len(path) > 0 and key not in ("shape", "low", "high", "dtype", "k", "tensor"):
                yield (*path, key), None
            yield from _steps(value[key], (*path, key))
    elif isinstance(value, list):
        is_call = bool(value) and isinstance(value[0], str)  # a method and its arguments
        for i in reversed(range(is_call, len(value))):
            yield (*path, i), None
        for i, element in enumerate(value):
            yield from _steps(element, (*path, i))
    elif isinstance(value, int) and not isinstance(value, bool) and value > 1:
        yield path, 1
        yield path, value // 2
