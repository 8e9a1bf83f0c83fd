#!/usr/bin/python3
"""The house is as docs/design.md draws it: its packages, the arrows between them, and the walk through its files.

Also: what the documents name exists, no two headers share a name, folders are shallow.
"""

import collections
import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(__file__).absolute().parents[2]
DESIGN = ROOT / "docs/design.md"
TOPS = ("engine", "lua", "launcher")
LEAST = 5  # files of a sub-folder, tests included

INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)
NAMED = re.compile(r"`((?:%s|docs)/[\w./-]*)`" % "|".join(TOPS))
LAYER = re.compile(r'\{"([A-Z]\w+)",')  # rows of the tables of layers and losses
SUPPORT = re.compile(r"_test\.cc$|_benchmark\.cc$|testing|/fake_|/pty")
DRAWN = re.compile(r"^(\w+): .+? ->(.*)$", re.MULTILINE)
STEP = re.compile(r"^\| (\d+) \| (\d*) ?\| .* \| `(\w+)\(\)` \| `([^`]+)` \|$", re.MULTILINE)


def drawn():
    """The packages of the drawing, each with those that it includes beside base."""
    block = re.search(r"^```house\n(.*?)^```", DESIGN.read_text(), re.DOTALL | re.MULTILINE).group(1)
    lines = block.splitlines()
    found = {name: below.split() for name, below in DRAWN.findall(block)}
    assert len(found) == len(lines), "a line of the drawing is no `package: what it is -> packages`"
    packages = {}
    for name, below in found.items():
        every = below[:1] == ["all"]  # "all", or "all but" some
        packages[name] = found.keys() - {name, "base", *below[2:]} if every else set(below)
    return packages


def sources():
    """All C++ files, as paths below the root."""
    files = [f for top in TOPS for f in (ROOT / top).rglob("*") if f.suffix in (".h", ".cc")]
    return sorted(str(file.relative_to(ROOT)) for file in files)


def package_of(path):
    """The package of a file or folder: the folder below engine, lua or launcher."""
    parts = pathlib.PurePath(path).parts
    return parts[1] if parts[0] == "engine" else parts[0]


def arrows(files, text_of):
    """Between packages, each with the first include that makes it."""
    found = {}
    for path in files:
        for target in INCLUDE.findall(text_of(path)):
            if target in files and package_of(target) not in (package_of(path), "base"):
                found.setdefault((package_of(path), package_of(target)), f"{path} includes {target}")
    return found


def cycle(packages):
    """Packages that stand on each other in a circle; empty where none do."""
    left = dict(packages)
    while True:
        done = [name for name, below in left.items() if not below & left.keys()]
        if not done:
            return sorted(left)
        for name in done:
            del left[name]


class House(unittest.TestCase):
    def setUp(self):
        self.packages = drawn()
        self.files = sources()
        self.own = [f for f in self.files if not SUPPORT.search(f)]
        self.assertGreater(len(self.files), 500, "the sources are not here")

    def test_every_package_is_drawn_and_exists(self):
        self.assertEqual({package_of(f) for f in self.own}, self.packages.keys())

    def test_the_arrows_are_those_of_the_includes(self):
        found = arrows(self.own, lambda f: (ROOT / f).read_text())
        wanted = {(above, below) for above, names in self.packages.items() for below in names}
        self.assertEqual([], [text for arrow, text in found.items() if arrow not in wanted], "not drawn")
        self.assertEqual([], sorted(wanted - found.keys()), "drawn, and nothing includes so")

    def test_no_package_stands_on_itself(self):
        self.assertEqual([], cycle(self.packages))

    def test_base_includes_no_other_package(self):
        self.assertEqual(set(), self.packages["base"])

    def test_a_new_include_is_seen(self):
        text = {"engine/base/log.cc": '#include "engine/plan/plan.h"\n', "engine/plan/plan.h": ""}
        self.assertEqual([("base", "plan")], list(arrows(list(text), text.get)))

    def test_a_cycle_is_seen(self):
        self.assertEqual(["a", "b", "c"], cycle({"a": {"b"}, "b": {"a"}, "c": {"a"}, "d": set()}))
        self.assertEqual([], cycle({"a": {"b", "c"}, "b": {"c"}, "c": set()}))

    def test_folders_are_shallow_and_few(self):
        count = collections.Counter(str(pathlib.PurePath(f).parent) for f in self.files)
        for folder, files in count.items():
            depth = len(pathlib.PurePath(folder).parts) - (folder.split("/")[0] == "engine")
            self.assertTrue(1 <= depth <= 2, f"{folder}: a package has one level of sub-folders")
            self.assertTrue(depth == 1 or files >= LEAST, f"{folder} has {files} files; its package takes them")

    def test_no_two_headers_share_a_name(self):
        headers = [f for f in self.files if f.endswith(".h") and not SUPPORT.search(f)]
        count = collections.Counter(pathlib.PurePath(f).name for f in headers)
        self.assertEqual([], [name for name, n in count.items() if n > 1])

    def test_what_documents_name_exists(self):
        documents = [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")]
        self.assertGreater(len(documents), 20)
        missing = [f"{file.name}: {path}" for file in documents
                   for path in NAMED.findall(file.read_text()) if not (ROOT / path).exists()]
        self.assertEqual([], missing)

    def test_the_table_of_layers_is_complete(self):
        built = {name for path in self.own if path.startswith("engine/layers/") and "_spec" not in path
                 for name in LAYER.findall((ROOT / path).read_text())}
        table = re.search(r"^\| family \|.*?^$", (ROOT / "docs/reference/contract.md").read_text(), re.DOTALL | re.MULTILINE)
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

    def test_each_step_of_the_walk_is_called_by_an_earlier_one(self):
        walk = re.search(r"^## 1\. The walk\n(.*?)^## ", DESIGN.read_text(), re.DOTALL | re.MULTILINE).group(1)
        steps = STEP.findall(walk)
        self.assertEqual(len(re.findall(r"^\| \d", walk, re.MULTILINE)), len(steps), "a row that is no step")
        self.assertEqual([str(i) for i in range(1, len(steps) + 1)], [step[0] for step in steps])
        self.assertTrue(15 <= len(steps) <= 25)
        texts = [re.sub(r"//.*", "", (ROOT / file).read_text()) for _, _, _, file in steps]
        for (number, caller, function, file), text in zip(steps, texts):
            call = re.compile(r"\b%s\(" % function)
            self.assertRegex(text, call, f"step {number}: {file} has no {function}()")
            if number == "1":
                continue
            self.assertLess(int(caller or number), int(number), f"step {number} comes from a later one")
            self.assertRegex(texts[int(caller) - 1], call, f"step {number}: step {caller} does not call {function}()")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
