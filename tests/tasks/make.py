"""Small data for the tasks, drawn from a seed and written as other programs write it."""

import array
import gzip
import json
import math
import os
import random
import struct
import zipfile
import zlib


def npy(values, shape, code="f"):
    """A file of NumPy: float32, or int64 with the code "q"."""
    header = "{'descr': '%s', 'fortran_order': False, 'shape': (%s,), }" % (
        {"f": "<f4", "q": "<i8"}[code], ", ".join(map(str, shape)))
    header = header.ljust(-(len(header) + 11) % 64 + len(header)) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + array.array(code, values).tobytes()


def idx(data, shape):
    return gzip.compress(bytes([0, 0, 8, len(shape)]) + struct.pack(">%dI" % len(shape), *shape) + bytes(data))


def png(pixels, width, height):
    """`pixels`: bytes of (height, width, 3)."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    rows = b"".join(b"\0" + bytes(pixels[3 * width * y:3 * width * (y + 1)]) for y in range(height))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">2I5B", width, height, 8, 2, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def text(value):
    return value.encode()


def pattern(chance, kind, x, y):
    """Classes of pictures: stripes across, stripes upright, squares."""
    wave = [x, y, x // 6 * 6 + y // 6 * 6][kind]
    return (1 if wave // 3 % 2 else -1) * 0.6 + chance.gauss(0, 0.3)


def photos(chance):
    for kind, name in enumerate(("across", "squares", "upright")):
        for i in range(50):
            width, height = chance.randint(40, 60), chance.randint(40, 60)
            cells = (pattern(chance, (0, 2, 1)[kind], x, y) for y in range(height) for x in range(width))
            pixels = [max(0, min(255, int(128 + 80 * cell))) for cell in cells for _ in range(3)]
            yield "photos/%s/%d.png" % (name, i), png(pixels, width, height)


def tokens(chance):
    def walk(count):
        token = 0
        for _ in range(count):
            token = (3 * token + chance.choice((1, 1, 1, 5))) % 64
            yield token
    for split, count in (("train", 20_000), ("val", 2_000)):
        yield split + ".bin", array.array("H", walk(count)).tobytes()


def llama(chance):
    words = ["the", "cat", "sat", "on", "a", "mat", "and", "saw", "that", "dog", "run"]
    for book in range(3):
        yield "books/%d.txt" % book, text(" ".join(words[(i * (book + 2)) % 11] for i in range(3000)))


def tagger(chance):
    def sentence():
        words = [chance.randrange(12) for _ in range(chance.randint(4, 16))]
        return {"words": words, "tags": [int(i > 0 and word > words[i - 1]) for i, word in enumerate(words)]}
    yield "sentences.json", text(json.dumps([sentence() for _ in range(600)]))


def houses(chance):
    yield "houses.csv", text("area,rooms,city,price\n" + "".join(
        "%s,%d,%s,%.3f\n" % (area if chance.random() > 0.03 else "", rooms, city,
                             area / 50 + rooms / 4 + {"Ulm": 0, "Bern": 1, "Graz": 2}[city])
        for area, rooms, city in ((chance.randint(30, 200), chance.randint(1, 6), chance.choice(["Ulm", "Bern", "Graz"]))
                                  for _ in range(500))))


def digits(chance):
    def image(label):  # a bar at the label's place
        at = 2 + 2 * label + chance.randint(0, 1)
        return [min(255, 200 * (at <= x < at + 3 and 4 < y < 24) + chance.randrange(56)) for y in range(28) for x in range(28)]
    labels = [chance.randrange(10) for _ in range(400)]
    yield "train-images.idx.gz", idx([pixel for label in labels for pixel in image(label)], (400, 28, 28))
    yield "train-labels.idx.gz", idx(labels, (400,))
    yield "test-images.npy", npy([pixel / 255 for label in labels[:100] for pixel in image(label)], (100, 1, 28, 28))
    yield "test-labels.npy", npy(labels[:100], (100,), "q")


def discs(chance, count, size):
    """Noise with a disc in it, and where the disc is."""
    for _ in range(count):
        x0, y0, r = chance.uniform(4, size - 4), chance.uniform(4, size - 4), chance.uniform(2, 5)
        mask = [float(math.hypot(x - x0, y - y0) < r) for y in range(size) for x in range(size)]
        yield [max(0.0, min(1.0, 0.2 + 0.6 * inside + chance.gauss(0, 0.1))) for inside in mask], mask


def cells(chance):
    made = list(discs(chance, 120, 16))
    yield "images.npy", npy([p for image, _ in made for p in image], (120, 1, 16, 16))
    yield "masks.npy", npy([p for _, mask in made for p in mask], (120, 1, 16, 16))


def vae(chance):
    yield "images.npy", npy([p for image, _ in discs(chance, 400, 16) for p in image], (400, 1, 16, 16))


def pairs(chance):
    causes = [[chance.gauss(0, 1) for _ in range(8)] for _ in range(512)]
    for name, size in (("queries", 24), ("items", 40)):
        views = (cause[k % 8] + chance.gauss(0, 0.1) for cause in causes for k in range(size))
        yield name + ".npy", npy(views, (512, size))


def finetune(chance):
    labels = [chance.randrange(3) for _ in range(200)]
    images = (pattern(chance, label, x, y) for label in labels for _ in range(3) for y in range(16) for x in range(16))
    yield "flowers.npz", {"images.npy": npy(images, (200, 3, 16, 16)), "labels.npy": npy(labels, (200,), "q")}


def reviews(chance):
    def review():
        verdict = chance.choice(["good", "bad"])
        words = ["so " for _ in range(chance.randint(0, 4))] + [{"good": "joy ", "bad": "woe "}[verdict]]
        chance.shuffle(words)
        return {"text": "".join(words) + "!", "verdict": verdict}
    yield "reviews.jsonl", text("".join(json.dumps(review()) + "\n" for _ in range(400)))


def series(chance):
    yield "series.npy", npy((math.sin(i / 4) + 0.5 * math.sin(i / 11) + chance.gauss(0, 0.05) for i in range(1200)), (1200,))


def write(task, folder):
    """All files of the task's data."""
    for name, content in globals()[task](random.Random(7)):
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if isinstance(content, dict):
            with zipfile.ZipFile(path, "w") as file:
                for part, data in content.items():
                    file.writestr(part, data)
            continue
        with open(path, "wb") as file:
            file.write(content)
