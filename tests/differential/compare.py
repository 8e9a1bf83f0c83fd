"""What is to be said of a case: what Strata gave beside what it should give."""

import math

import values

# TOLERANCE, of the largest element of a tensor: other kernels add in another order; TF32 would be 4e-4. FLOOR: a
# tensor whose elements are all smaller is what is left of larger numbers.
TOLERANCE, FLOOR = (1e-5, 1e-2) if values.DEVICE == "cpu" else (1e-4, 1.0)
AFTER_UPDATES = 5e-5  # rounding has gone through further passes

WRONG = ["wrong", "refused", "accepted", "late", "crash", "hang"]


class Verdict:
    """what: equal (bit for bit), close, refused by both, explained, or one of WRONG; why."""

    def __init__(self, what, why=""):
        self.what, self.why = what, why

    def __repr__(self):
        return "%s: %s" % (self.what, self.why)

    @property
    def wrong(self):
        return self.what in WRONG


def described(tensor):
    """A tensor of PyTorch, or a number, as the runner gives values."""
    if isinstance(tensor, bool):
        return "boolean", [], [float(tensor)]
    if isinstance(tensor, (int, float)):
        return "number", [], [float(tensor)]
    elements = tensor.detach().double().flatten().tolist()
    return str(tensor.dtype).split(".")[1], list(tensor.shape), elements


def judge(expected, outcome, refused=(), accepted=(), tolerance=TOLERANCE):
    """`expected`: the values that PyTorch gave, or the text of its refusal. What only one of both takes
    is explained by pairs of a pattern and a reason: `refused` fit Strata's words, `accepted` PyTorch's."""
    if outcome.what in ("crash", "hang"):
        return Verdict(outcome.what, outcome.text)
    is_refused = outcome.what in ("refused", "late")
    if is_refused and isinstance(expected, str):
        return Verdict("both refuse" if outcome.what == "refused" else "both refuse, late", outcome.text)
    if is_refused:
        reason = explanation(outcome.text, refused)
        return Verdict("explained", reason) if reason else Verdict(outcome.what, outcome.text)
    if isinstance(expected, str):
        reason = explanation(expected, accepted)
        return Verdict("explained", reason) if reason else Verdict("accepted", "PyTorch: " + expected)
    return compare(expected, outcome.values, tolerance)


def explanation(text, reasons):
    """The documented reason of a refusal, or None."""
    return next((reason for pattern, reason in reasons if pattern.search(text)), None)


def compare(expected, values, tolerance=TOLERANCE):
    """Both are what the runner gives, by name."""
    if set(expected) != set(values):
        return Verdict("wrong", "has %s instead of %s" % (sorted(values), sorted(expected)))
    worst = 0.0
    for name, theirs in expected.items():
        error = _error(theirs, values[name])
        if isinstance(error, str) or error > tolerance:
            return Verdict("wrong", "%s: %s\n  theirs %s\n  ours   %s" % (
                name, error, _short(theirs), _short(values[name])))
        worst = max(worst, error)
    return Verdict("close" if worst else "equal", "%.1e" % worst)


def rounding(truth, theirs, ours):
    """A verdict where no tensor of ours is much farther from `truth`, in float64, than theirs is; else None."""
    if set(truth) != set(ours):
        return None
    for name, (_, shape, elements) in truth.items():
        errors = [_error((side[name][0], shape, elements), side[name]) for side in (theirs, ours)]
        if any(isinstance(error, str) for error in errors) or errors[1] > max(AFTER_UPDATES, 2 * errors[0]):
            return None
    return Verdict("rounding", "as far from float64 as PyTorch is")


def _error(theirs, ours):
    """How far ours is from theirs, as a share of the largest element; text where not comparable."""
    for what, a, b in [("dtype", theirs[0], ours[0]), ("shape", list(theirs[1]), list(ours[1]))]:
        if a != b:
            return "%s %s instead of %s" % (what, b, a)
    scale = max([abs(a) for a in theirs[2] if math.isfinite(a)] + [FLOOR])
    worst = 0.0
    for i, (a, b) in enumerate(zip(theirs[2], ours[2])):
        if a == b or (math.isnan(a) and math.isnan(b)):
            continue
        if not (math.isfinite(a) and math.isfinite(b)):
            return "element %d is %r instead of %r" % (i, b, a)
        worst = max(worst, abs(a - b) / scale)
    return worst


def _short(value):
    dtype, shape, elements = value
    return "%s %s %s%s" % (dtype, shape, elements[:8], " ..." if len(elements) > 8 else "")
