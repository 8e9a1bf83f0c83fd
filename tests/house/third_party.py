#!/usr/bin/env python3
"""THIRD_PARTY.md against what the build links and what a package holds.

usage: third_party.py, as a test of Bazel's.
"""

import os
import re
import sys

ROOT = os.path.join(os.environ["TEST_SRCDIR"], os.environ["TEST_WORKSPACE"])
sys.dont_write_bytecode = True
sys.path.append(os.path.join(ROOT, "tools"))
import make_package  # the reader of ELF files

# Libraries that only tests are linked to.
_OF_TESTS = {"benchmark", "gtest", "rapidcheck"}
# Archives of one Debian package, by the name of their package.
_PACKAGE_OF = {"libtinfo.a": "libncurses-dev", "libluajit-5.1.a": "libluajit-5.1-dev", "libglog.a": "libgoogle-glog-dev"}


def read(path):
    with open(os.path.join(ROOT, path)) as file:
        return file.read()


def require(condition, what, shown):
    if not condition:
        sys.exit("expected %s in:\n%s" % (what, shown))


def main():
    page = read("THIRD_PARTY.md")
    packages = set(re.findall(r"\| `([a-z0-9+.-]+)` \|$", page, re.MULTILINE))
    require(len(packages) > 10, "the packages", page)
    folder = os.path.join(ROOT, "third_party")
    linked = set()
    for name in sorted(os.listdir(folder)):
        library = name[:-len(".BUILD")]
        if not name.endswith(".BUILD") or library in _OF_TESTS:
            continue
        text = read("third_party/" + name)
        named = re.findall(r"\(([a-z0-9.-]*-dev(?:, [a-z0-9.-]*-dev)*)\)", text)
        for archive in re.findall(r"lib/x86_64-linux-gnu/(lib[\w.-]+\.a)", text):
            linked.add(_PACKAGE_OF.get(archive, archive[:-2] + "-dev"))
        if not re.search(r"\.a\"", text):  # headers, or shared libraries
            require(named, "Debian's package", text)
    require(linked <= packages, "all that is linked", "%s are missing" % sorted(linked - packages))
    for header in ("nlohmann-json3-dev", "libxxhash-dev", "libgloo-dev"):
        require(header in packages, header, page)
    for binary in ("launcher/strata", "lua/libstrata_engine.so", "engine/data/libstrata_arrow.so"):
        with open(os.path.join(ROOT, binary), "rb") as file:
            elf = make_package.Elf(file.read(), binary)
        for needed in elf.needed():
            of_others = (make_package.SYSTEM, make_package.OF_TORCH, make_package.OF_ARROW)
            known = any(library.match(needed) for library in of_others)
            require(known or "`%s`" % needed in page, "%s, which %s needs" % (needed, binary), page)
    print("%d packages" % len(packages))


if __name__ == "__main__":
    main()
