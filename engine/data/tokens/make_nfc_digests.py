#!/usr/bin/env python3
"""Prints the digests of nfc_test.cc: of what Python's unicodedata makes of each character, and of drawn texts."""

import sys
import unicodedata

CODES = [code for code in range(sys.maxunicode + 1) if not 0xd800 <= code < 0xe000]
# Where characters combine, compose and decompose: nfc_test.cc has the same.
BLOCKS = [(0x41, 0x7a), (0xc0, 0x17f), (0x300, 0x36f), (0x591, 0x5ea), (0x61f, 0x670), (0x900, 0x9ff), (0xdca, 0xddf),
          (0xf40, 0xfbc), (0x1100, 0x11ff), (0x1e00, 0x1fff), (0x212a, 0x212b), (0x3040, 0x30ff), (0xac00, 0xac7f),
          (0xfb1d, 0xfb4e), (0x11080, 0x110ba), (0x1d157, 0x1d172), (0x2f800, 0x2f8ff)]


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


def main():
    normalised = lambda text: unicodedata.normalize("NFC", text)
    print("each character:", digest(normalised(chr(code)) + "\n" for code in CODES))
    print("100,000 texts:", digest(normalised(text) + "\n" for text in texts(100000)))


main()
