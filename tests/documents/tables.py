#!/usr/bin/env python3
"""Documents that the program's own tables say.

usage: tables.py STRATA MODELS TEST...

keys: docs/keys.md has the keys as `strata help train` says them, and examples that the program takes.
After a change of a key, `tables.py STRATA MODELS write_keys` prints the page anew.

reference: docs/reference/ is what the program's tables say, and its examples of layers make layers.
After a change of a table, `tables.py STRATA MODELS write_reference` writes the pages below ./docs.
"""

import json
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.dirname(HERE))
import program
import reference as pages_of
from program import require

DOCS = os.path.join(HERE, "../../docs")
KEYS = os.path.join(DOCS, "keys.md")
BY_HAND = ["contract.md", "faults.md"]  # in docs/reference, too: what no table of the program knows


def told(strata):
    """The keys of a job that are flags, as the program's tables have them: [name, takes, default, what it says]."""
    return [[key["name"], key["takes"], key["default"], key["help"]]
            for key in json.loads(strata.run("help", "--json"))["flags"]]


def written(path):
    """The rows of the page's table."""
    with open(path) as file:
        rows = re.findall(r"^\| `(.*)` \| (.*) \| `(.*)` \| (.*) \| (.*) \|$", file.read(), re.MULTILINE)
    return [[cell.replace("\\|", "|") for cell in row] for row in rows]


def keys(strata):
    """The page's table is the program's, and each of its examples is taken."""
    rows, expected = written(KEYS), told(strata)
    require(len(expected) > 30, "the keys of a job", expected)
    require([row[:4] for row in rows] == expected, "the table of write_keys",
            [row[:4] for row in rows if row[:4] not in expected] +
            ["lacks " + row[0] for row in expected if row[0] not in [r[0] for r in rows]])
    for name, *_, example in rows:
        flags = re.fullmatch("`(.*)`", example).group(1).split(" ")
        require(any(flag.split("=")[0].split(".")[0] == "--" + name for flag in flags),
                "an example of " + name, example)
        strata.run("plan", "digits.lua", *flags)


def write_keys(strata):
    """Prints the page; examples stay as they are."""
    examples = {row[0]: row[4] for row in written(KEYS)}
    with open(KEYS) as file:
        print(file.read().split("| key |")[0], end="")
    print("| key | takes | default | what it says | example |\n|---|---|---|---|---|")
    for row in told(strata):
        print("| `%s` | %s | `%s` | %s | %s |" % (*map(pages_of.cell, row), examples.get(row[0], "`?`")))


_DRAW = """
local strata = require "strata"
for _, name in ipairs{%s} do
  for stages = 1, 2 do
    local drawn, program = pcall(strata.schedule, name, {ranks=3, stages_per_rank=stages, micro_batches=4})
    if drawn then
      print("== " .. name)
      print(program:gantt())
      break
    end
  end
end
"""


def drawings(strata, names):
    """The picture of each schedule that is not searched."""
    listed = ", ".join(json.dumps(name) for name in names if name != "auto")
    shown = strata.run("run", strata.write("draw.lua", _DRAW % listed))
    parts = re.split(r"^== (\w+)\n", shown, flags=re.MULTILINE)[1:]
    return {name: text.strip("\n") for name, text in zip(parts[::2], parts[1::2])}


def expected_pages(strata):
    told = json.loads(strata.run("help", "--json"))
    return told, pages_of.pages(told, drawings(strata, told["schedules"]))


def reference(strata):
    """The pages are those that the program's tables give, and each layer's example is one."""
    told, expected = expected_pages(strata)
    folder = os.path.join(DOCS, "reference")
    require(sorted(os.listdir(folder)) == sorted([*expected, *BY_HAND]), "the pages", os.listdir(folder))
    for name, text in expected.items():
        with open(os.path.join(folder, name)) as file:
            there = file.read()
        wrong = [line for line in text.split("\n") if line not in there.split("\n")]
        require(there == text, "%s as write_reference writes it" % name, "\n".join(wrong[:20]) or "another order")
    layers = [pages_of.example(layer) for layer in told["layers"]]
    script = strata.write("layers.lua", "local strata = require 'strata'\nlocal nn = strata.nn\n" +
                          "\n".join("do local _ = %s end" % layer for layer in layers))
    strata.run("run", script)
    print("%d entries, %d examples of layers" % (pages_of.count(told), len(layers)))


def write_reference(strata):
    """Writes the pages below the current folder."""
    for name, text in expected_pages(strata)[1].items():
        os.makedirs("docs/reference", exist_ok=True)
        with open(os.path.join("docs/reference", name), "w") as file:
            file.write(text)


if __name__ == "__main__":
    program.main(globals())
