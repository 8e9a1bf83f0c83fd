#!/usr/bin/env python3
"""docs/reference/faults.md names its tests: each of them is there."""

import os
import re
import sys

# Test suites of C++: TEST(Suite, Name), TEST_P and TEST_F; functions of our Python tests.
FORMS = {".cc": r"TEST(?:_P|_F)?\(\w+, %s\)", ".py": r"^def %s\("}


def main():
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
    with open(os.path.join(root, "docs/reference/faults.md")) as file:
        rows = re.findall(r"^\| (.+) \| `(\S+): (\w+)` \|$", file.read(), re.M)
    if len(rows) < 30:
        sys.exit("expected a table of faults, found %d rows" % len(rows))
    for fault, path, name in rows:
        with open(os.path.join(root, path)) as file:
            if not re.search(FORMS[os.path.splitext(path)[1]] % name, file.read(), re.M):
                sys.exit("%s: no test %s in %s" % (fault.split(" | ")[0], name, path))
    print("%d faults" % len(rows))


if __name__ == "__main__":
    main()
