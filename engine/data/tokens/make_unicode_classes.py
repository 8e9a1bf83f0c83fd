#!/usr/bin/env python3
"""Writes unicode_classes.inc, the ranges of letters (L*) and numbers (N*), and unicode_compositions.inc, what NFC
needs, by Python's unicodedata. Prints the digests that nfc_test.cc has.

Run in this folder: python3 make_unicode_classes.py
"""

import sys
import unicodedata

CODES = [code for code in range(sys.maxunicode + 1) if not 0xd800 <= code < 0xe000]
HANGUL = range(0xac00, 0xd7a4)  # by rule
# Where characters combine, compose and decompose: nfc_test.cc has the same.
BLOCKS = [(0x41, 0x7a), (0xc0, 0x17f), (0x300, 0x36f), (0x591, 0x5ea), (0x61f, 0x670), (0x900, 0x9ff), (0xdca, 0xddf),
          (0xf40, 0xfbc), (0x1100, 0x11ff), (0x1e00, 0x1fff), (0x212a, 0x212b), (0x3040, 0x30ff), (0xac00, 0xac7f),
          (0xfb1d, 0xfb4e), (0x11080, 0x110ba), (0x1d157, 0x1d172), (0x2f800, 0x2f8ff)]


def ranges(value_of):
    """(first, last, value) where the value is true."""
    runs = []
    for code in range(sys.maxunicode + 1):
        value = value_of(chr(code))
        if runs and runs[-1][2] == value and runs[-1][1] == code - 1:
            runs[-1][1] = code
        elif value:
            runs.append([code, code, value])
    return runs


def write(declaration, items, file):
    file.write(f"constexpr {declaration}[] = {{\n")
    line = "   "
    for item in items:
        if len(line) + len(item) > 96:
            file.write(line + "\n")
            line = "   "
        line += " " + item + ","
    file.write(line + "\n};\n")


def compositions():
    """(code, first, second or 0, whether both compose it)."""
    for code in CODES:
        parts = unicodedata.decomposition(chr(code)).split()
        if not parts or parts[0].startswith("<") or code in HANGUL:
            continue
        first, second = [int(part, 16) for part in parts + ["0"] * (2 - len(parts))]
        composes = second and unicodedata.normalize("NFC", chr(code)) == chr(code)
        yield "{0x%x, 0x%x, 0x%x, %s}" % (code, first, second, "true" if composes else "false")


def digest(texts):
    """FNV-1a."""
    value = 0xcbf29ce484222325
    for text in texts:
        for byte in text.encode():
            value = (value ^ byte) * 0x100000001b3 % 2**64
    return "0x%016x" % value


def texts(count):
    """Of eight characters each, which the numbers of MMIX draw."""
    codes = [code for first, last in BLOCKS for code in range(first, last + 1)]
    state = 1
    for _ in range(count):
        text = ""
        for _ in range(8):
            state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
            text += chr(codes[(state >> 33) % len(codes)])
        yield text


def head(file):
    file.write(f"// Unicode {unicodedata.unidata_version}, written by make_unicode_classes.py.\n")


def main():
    with open("unicode_classes.inc", "w") as file:
        head(file)
        for name, kind in [("kLetters", "L"), ("kNumbers", "N")]:
            runs = ranges(lambda character: unicodedata.category(character)[0] == kind)
            write(f"Range {name}", ["{0x%x, 0x%x}" % (first, last) for first, last, _ in runs], file)
    with open("unicode_compositions.inc", "w") as file:
        head(file)
        write("ClassRange kClasses", ["{0x%x, 0x%x, %d}" % tuple(run) for run in ranges(unicodedata.combining)], file)
        write("Composition kCompositions", compositions(), file)
    normalised = lambda text: unicodedata.normalize("NFC", text)
    print("each character:", digest(normalised(chr(code)) + "\n" for code in CODES))
    print("100,000 texts:", digest(normalised(text) + "\n" for text in texts(100000)))


main()
