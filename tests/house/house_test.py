#!/usr/bin/python3
"""The house is as docs/design.md draws it: every folder is a room, includes point only downwards.

Also: what the documents name exists, no two headers share a name, no room is overfull.
"""

import collections
import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(__file__).absolute().parents[2]
DESIGN = ROOT / "docs/design.md"
FLOORS = ("engine", "lua", "launcher")
FULL = 25  # files of a folder, tests included

INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)
NAMED = re.compile(r"`((?:%s|docs)/[\w./-]*)`" % "|".join(FLOORS))
LAYER = re.compile(r'\{"([A-Z]\w+)",')  # rows of the tables of layers and losses
SUPPORT = re.compile(r"_test\.cc$|_benchmark\.cc$|testing|/fake_|/pty")


def drawn():
    """The rooms of the drawing, each with the number of its line from the bottom."""
    block = re.search(r"^```house\n(.*?)^```", DESIGN.read_text(), re.DOTALL | re.MULTILINE).group(1)
    lines = [re.split(r" {2,}", line)[0].split() for line in block.splitlines()]
    return {room: height for height, rooms in enumerate(reversed(lines)) for room in rooms}


def sources():
    """All C++ files, as paths below the root."""
    files = [f for floor in FLOORS for f in (ROOT / floor).rglob("*") if f.suffix in (".h", ".cc")]
    return sorted(str(file.relative_to(ROOT)) for file in files)


def room_of(path, rooms):
    """The room that a file is in: the nearest folder above it that is drawn."""
    folder = pathlib.PurePath(path).parent
    while str(folder) not in rooms and folder.parts:
        folder = folder.parent
    return str(folder)


def upward(files, rooms, text_of):
    """Includes that leave a room and do not point downwards."""
    for path in files:
        here = room_of(path, rooms)
        for target in INCLUDE.findall(text_of(path)):
            there = room_of(target, rooms)
            if target in files and there != here and rooms.get(there, 0) >= rooms.get(here, 0):
                yield f"{path} includes {target}: {there} is not below {here}"


class House(unittest.TestCase):
    def setUp(self):
        self.rooms = drawn()
        self.files = sources()
        self.assertGreater(len(self.files), 500, "the sources are not here")

    def test_every_room_is_drawn_and_exists(self):
        own = [f for f in self.files if not SUPPORT.search(f)]
        self.assertEqual([], [f for f in own if room_of(f, self.rooms) == "."])
        used = {room_of(f, self.rooms) for f in own}
        self.assertEqual(set(), set(self.rooms) - used)

    def test_includes_point_downwards(self):
        own = [f for f in self.files if not SUPPORT.search(f)]
        self.assertEqual([], list(upward(own, self.rooms, lambda f: (ROOT / f).read_text())))

    def test_an_upward_include_is_seen(self):
        text = {"engine/base/log.cc": '#include "engine/plan/plan.h"\n', "engine/plan/plan.h": ""}
        self.assertEqual(1, len(list(upward(list(text), self.rooms, text.get))))

    def test_no_room_is_overfull(self):
        count = collections.Counter(str(pathlib.PurePath(f).parent) for f in self.files)
        count["tests"] = sum(file.is_file() for file in (ROOT / "tests").iterdir())
        self.assertGreater(count["tests"], 15, "the tests' scripts are not here")
        self.assertEqual({}, {room: n for room, n in count.items() if n > FULL})

    def test_no_two_headers_share_a_name(self):
        headers = [f for f in self.files if f.endswith(".h") and not SUPPORT.search(f)]
        count = collections.Counter(pathlib.PurePath(f).name for f in headers)
        self.assertEqual([], [name for name, n in count.items() if n > 1])

    def test_what_documents_name_exists(self):
        documents = [*(ROOT / "docs").glob("*.md"), *ROOT.glob("*.md")]
        self.assertGreater(len(documents), 4)
        missing = [f"{file.name}: {path}" for file in documents
                   for path in NAMED.findall(file.read_text()) if not (ROOT / path).exists()]
        self.assertEqual([], missing)

    def test_the_table_of_layers_is_complete(self):
        built = {name for path in self.files if path.startswith("engine/layers/") and "_test" not in path
                 for name in LAYER.findall((ROOT / path).read_text())}
        table = re.search(r"^\| family \|.*?^$", (ROOT / "docs/scripts.md").read_text(), re.DOTALL | re.MULTILINE)
        told = set()
        for name in re.findall(r"`([A-Z]\w+(?:-3d)?)", table.group()):
            told |= {name[:-5] + f"{n}d" for n in (1, 2, 3)} if name.endswith("1d-3d") else {name}
        self.assertGreater(len(built), 100)
        self.assertEqual(built, {name for name in told if "Parallel" not in name})

    def test_prose_is_at_most_120_wide(self):
        for file in [*(ROOT / "docs").glob("*.md"), *ROOT.glob("*.md")]:
            prose = re.sub(r"^```.*?^```", "", file.read_text(), flags=re.DOTALL | re.MULTILINE)
            wide = [line for line in prose.splitlines() if len(line) > 120 and not line.startswith("|")]
            self.assertEqual([], wide, file.name)

    def test_the_walk_is_short(self):
        walk = re.search(r"^## 1\. The walk\n(.*?)^## ", DESIGN.read_text(), re.DOTALL | re.MULTILINE).group(1)
        steps = re.findall(r"^\| \d+ \|.*`([^`]+)` \|$", walk, re.MULTILINE)
        self.assertTrue(10 <= len(steps) <= 15, steps)
        self.assertEqual([], [step for step in steps if not (ROOT / step).is_file()])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
