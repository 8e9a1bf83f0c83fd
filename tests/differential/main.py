#!/usr/bin/env python3
"""Random cases in Strata and in PyTorch, compared.

usage: main.py STRATA MODELS KIND=COUNT...      (class_dims, layers, optimizers, functions, plans, processes)

The cases are the same ones each time, unless $SEED says otherwise; $CASE=NUMBER runs one alone, $CASES
more of them or fewer. $DEVICE=cuda lets Strata compute there. $SHRINK=0 leaves failing cases as large as they are.
"""

import collections
import importlib
import json
import os
import pathlib
import sys
import time

import program
import runner
from chance import Chance
from shrink import shrink

SEED = int(os.environ.get("SEED", "12"))
SHOWN = int(os.environ.get("SHOWN", "12"))  # failures that are made smaller and shown


def numbers(count):
    """Those of this shard."""
    if "CASE" in os.environ:
        return [int(os.environ["CASE"])]
    if "TEST_SHARD_STATUS_FILE" in os.environ:
        pathlib.Path(os.environ["TEST_SHARD_STATUS_FILE"]).touch()
    shards, shard = (int(os.environ.get("TEST_" + name, fallback))
                     for name, fallback in [("TOTAL_SHARDS", 1), ("SHARD_INDEX", 0)])
    return range(shard, count, shards)


def verdicts(strata, kind, cases):
    """What is to be said of each case, by its number."""
    if hasattr(kind, "verdicts"):
        return kind.verdicts(strata, cases)
    texts = {n: dict(kind.texts(case, n)) for n, case in cases.items()}
    outcomes = runner.run(strata, {k: v for of in texts.values() for k, v in of.items()}, kind.RUN)
    return {n: kind.verdict(case, [outcomes[k] for k in texts[n]]) for n, case in cases.items()}


BROKEN = (KeyError, IndexError, ValueError, TypeError, AttributeError)  # a case that is none any more


def is_case(kind, case):
    """Whether what shrinking left can be written down, and has a twin."""
    try:
        texts = dict(kind.texts(case, 0))
        kind.verdict(case, [runner.Outcome() for _ in texts])
    except BROKEN:
        return False
    return True


def smallest(strata, kind, case, what):
    def fails(candidates):
        sound = {i: c for i, c in enumerate(candidates) if is_case(kind, c)}
        try:
            found = verdicts(strata, kind, sound)
        except AssertionError:  # one of them is not even Lua
            return [len(candidates) > 1 and fails([c])[0] for c in candidates]
        return [i in found and found[i].what == what for i in range(len(candidates))]
    return shrink(case, fails)


def report(strata, kind, name, number, case, verdict):
    print("-- %s %d: %s" % (name, number, verdict), flush=True)  # of a moment, perhaps
    if os.environ.get("SHRINK") != "0":
        case = smallest(strata, kind, case, verdict.what)
        verdict = verdicts(strata, kind, {number: case})[number]
    print("-- %s %d, seed %d: %s\n%s" % (name, number, SEED, verdict, json.dumps(case)))
    print(*dict(kind.texts(case, number)).values(), "", sep="\n", flush=True)


def campaign(strata, name, count):
    kind = importlib.import_module(name)
    start, found, failed = time.monotonic(), collections.Counter(), []
    all_numbers = list(numbers(count))
    for begin in range(0, len(all_numbers), runner.SHARE):
        cases = {n: kind.generate(Chance(name, SEED, n)) for n in all_numbers[begin:begin + runner.SHARE]}
        for number, verdict in verdicts(strata, kind, cases).items():
            found[verdict.what] += 1
            if verdict.what in os.environ.get("SHOW", "").split(","):
                print(name, number, verdict, *dict(kind.texts(cases[number], number)).values())
            if verdict.wrong:
                failed.append((number, cases[number], verdict))
    for number, case, verdict in failed[:SHOWN]:
        report(strata, kind, name, number, case, verdict)
    others = ["%d %s" % (n, v.what) for n, _, v in failed[SHOWN:]]
    print("%s: %d cases in %.0f s: %s %s" % (name, len(all_numbers), time.monotonic() - start,
                                           dict(found), ", ".join(others)))
    if hasattr(kind, "COUNTS"):
        print("%s, their plans: %s" % (name, dict(kind.COUNTS)))
    program.require(not failed, "no failure", "%d cases" % len(failed))


def main():
    for argument in sys.argv[3:]:
        name, _, count = argument.partition("=")
        campaign(program.Program(sys.argv[1], sys.argv[2]), name, int(os.environ.get("CASES", count)))


if __name__ == "__main__":
    main()
