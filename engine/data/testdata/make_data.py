#!/usr/bin/env python3
"""Writes the files of this folder with NumPy and Pillow: what other programs write and read.

Run in this folder: python3 make_data.py
"""

import gzip

import numpy
from PIL import Image

random = numpy.random.RandomState(7)
floats = random.rand(3, 2, 2).astype(numpy.float32)
numpy.save("floats.npy", floats)
numpy.save("scalar.npy", numpy.int64(7))
numpy.save("fortran.npy", numpy.asfortranarray(random.rand(3, 4)))
numpy.save("complex.npy", numpy.zeros(2, numpy.complex64))
numpy.save("big.npy", numpy.arange(3, dtype=">i4"))
arrays = {"x": numpy.arange(12, dtype=numpy.float64).reshape(4, 3), "y": numpy.array([2, 0, 1, 1], numpy.uint8)}
numpy.savez("stored.npz", **arrays)
numpy.savez_compressed("deflated.npz", **arrays)
with gzip.open("labels.idx.gz", "wb") as file:
    file.write(bytes([0, 0, 8, 1, 0, 0, 0, 3, 5, 0, 9]))

# A picture with edges and ramps, as files, and what Pillow makes of it.
y, x = numpy.mgrid[0:48, 0:64]
picture = numpy.stack([x * 4 % 256, y * 5 % 256, (x // 8 + y // 8) % 2 * 200], 2).astype(numpy.uint8)
image = Image.fromarray(picture)
image.save("picture.png")
image.save("picture.jpg", quality=90)
image.convert("L").save("grey.jpg")
image.convert("CMYK").save("cmyk.jpg")
image.convert("P").save("palette.png")
numpy.save("picture_png.npy", picture)
numpy.save("picture_jpg.npy", numpy.asarray(Image.open("picture.jpg").convert("RGB")))
crop = image.resize((20, 20), Image.BILINEAR, box=(8, 0, 56, 48))
numpy.save("picture_20.npy", numpy.asarray(crop).transpose(2, 0, 1))
larger = image.resize((80, 60), Image.BILINEAR)
numpy.save("picture_80.npy", numpy.asarray(larger).transpose(2, 0, 1))
