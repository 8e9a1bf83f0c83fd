#!/usr/bin/env python3
"""Writes unicode_classes.inc: the ranges of letters (L*) and numbers (N*), by Python's unicodedata."""

import sys
import unicodedata


def ranges(kind):
    begin = None
    for code in range(sys.maxunicode + 2):
        inside = code <= sys.maxunicode and unicodedata.category(chr(code))[0] == kind
        if inside and begin is None:
            begin = code
        if not inside and begin is not None:
            yield begin, code - 1
            begin = None


def write(name, kind, file):
    items = ["{0x%x, 0x%x}" % pair for pair in ranges(kind)]
    file.write(f"constexpr Range {name}[] = {{\n")
    line = "   "
    for item in items:
        if len(line) + len(item) > 96:
            file.write(line + "\n")
            line = "   "
        line += " " + item + ","
    file.write(line + "\n};\n")


with open("unicode_classes.inc", "w") as file:
    file.write(f"// Unicode {unicodedata.unidata_version}, written by make_unicode_classes.py.\n")
    write("kLetters", "L", file)
    write("kNumbers", "N", file)
