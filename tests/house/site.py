#!/usr/bin/env python3
"""The site of docs/ (tools/site): MkDocs builds it without a warning, every page is in its menu and its search.

usage: site.py, as a test of Bazel's.
"""

import json
import os
import shutil
import subprocess
import sys

ROOT = os.path.join(os.environ["TEST_SRCDIR"], os.environ["TEST_WORKSPACE"])


def require(condition, what, shown):
    if not condition:
        sys.exit("expected %s, got:\n%s" % (what, shown))


def main():
    if not shutil.which("mkdocs"):
        print("skipped: there is no mkdocs here (Debian's package mkdocs)")
        return
    source, site = (os.path.join(os.environ["TEST_TMPDIR"], name) for name in ("source", "site"))
    shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns("bazel-*"))
    built = subprocess.run(["mkdocs", "build", "--strict", "--site-dir", site], cwd=source, text=True,
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    require(built.returncode == 0, "a site", built.stdout)
    require("not included in the \"nav\"" not in built.stdout, "every page in the menu", built.stdout)
    with open(site + "/search/search_index.json") as file:
        found = {entry["location"].split("#")[0] for entry in json.load(file)["docs"]}
    pages = {os.path.relpath(os.path.join(folder, name), source + "/docs")
             for folder, _, names in os.walk(source + "/docs") for name in names if name.endswith(".md")}
    pages |= {name for name in os.listdir(source) if name.endswith(".md") and name != "README.md"}
    wanted = {page.replace("README.md", "index.md")[:-len("md")] + "html" for page in pages}
    require(len(wanted) > 30 and wanted == found, "all pages in the search", sorted(wanted ^ found))
    print("%d pages" % len(wanted))


if __name__ == "__main__":
    main()
