#!/usr/bin/env python3
"""The files of --svg, --html and --trace, as their users see them.

usage: pictures.py STRATA MODELS TEST...
"""

import json
import os
import re
import shutil
import struct
import subprocess
import tempfile
import xml.etree.ElementTree
import zlib

from program import main, require, skipped

WIDE = """
local strata = require "strata"
return strata.job {
  name = "64 by 256 </script> & \\"'",
  layers = strata.times(64, function(i) return strata.nn.Linear{16, 16} end),
  loss = strata.nn.MSELoss{}, input = { shape = {16} }, device = "cpu",
  parallel = { pipe = 64 }, schedule = "zb_h1",
  batch = { micro_batches = 256, micro_batch_size = 1 },
}
"""

ROWS = """
local strata = require "strata"
local p = strata.schedule("1f1b", {ranks=2, micro_batches=4}):lowered()
print(strata.json.encode(p.rows))
"""

DIGITS = ["digits.lua", "--pipe=2", "--schedule=1f1b", "--micro_batches=4",
          "--micro_batch_size=16", "--threads=1", "--device=cpu"]


def data_of(html):
    found = re.search(r'<script id="data" type="application/json">(.*?)</script>', html, re.S)
    return json.loads(found.group(1))


def read_lane(timeline, lane):
    """The texts and ends of a lane's actions (PageData() of engine/picture/page.h)."""
    names, ends, end = [], [], 0
    for shape, micro, gap, took in zip(lane["shape"], lane["micro"], lane["gap"], lane["took"]):
        kind, stage = lane["shapes"][shape][:2]
        names.append("%d%s%s" % (stage, KINDS[kind], micro if micro >= 0 else ""))
        end += gap + took
        ends.append(end * timeline["tick"])
    return names, ends


KINDS = ["", "F", "I", "W", "B", "R", "OVERLAP_F_B", "SEND_F", "RECV_F", "SEND_B", "RECV_B",
         "REDUCE_TIED", "REDUCE_GRAD", "STEP", "UNSHARD", "RESHARD"]


def plan(strata):
    """`strata plan` writes both, without LibTorch's help; the page holds the program."""
    strata.run("plan", *DIGITS, "--svg=plan.svg", "--html=plan.html")
    drawing = strata.read("plan.svg")
    xml.etree.ElementTree.fromstring(drawing)
    require(">B3</text>" in drawing, "the last backward", drawing)
    page = strata.read("plan.html")
    require("://" not in page, "nothing from outside", "the page")
    data = data_of(page)
    require(data["kinds"] == KINDS, "these kinds", data["kinds"])
    require(data["stage_count"] == 2, "two stages", data)
    (timeline,) = data["timelines"]
    names = [read_lane(timeline, lane)[0] for lane in timeline["lanes"]]
    require(names == [["0F0", "0F1", "0B0", "0F2", "0B1", "0F3", "0B2", "0B3"],
                      ["1F0", "1B0", "1F1", "1B1", "1F2", "1B2", "1F3", "1B3"]],
            "1f1b's rows", names)


def wrong_files(strata):
    """What cannot be written is said before anything is trained."""
    strata.run("train", *DIGITS, "--steps=1", "--html=page.html", code=2, says="--trace=FILE")
    for flag in ("trace", "svg", "html"):
        flags = {"trace": "t.json", flag: "no/such/folder/file"}
        strata.run("train", *DIGITS, "--steps=1", *("--%s=%s" % item for item in flags.items()), code=1,
                   says="no/such/folder/file: No such file or directory", lacks="step 1")
    strata.run("plan", *DIGITS, "--svg=no/such/folder/file", code=1, says="no/such/folder/file: No such file")


def check_trace(strata, transport):
    """Every action of the program once, in order, on each rank, in each step."""
    strata.run("train", *DIGITS, "--steps=4", "--transport=" + transport, "--trace=run.json", "--html=run.html",
               "--svg=run.svg", says="trace of steps 0 to 3: run.json")
    strata.write("rows.lua", ROWS)
    rows = json.loads(strata.run("run", "rows.lua"))
    events = strata.json("run.json")["traceEvents"]
    actions = [e for e in events if e["ph"] == "X" and "step" in e["args"]]
    for rank, row in enumerate(rows):
        for step in range(4):
            own = [e for e in actions if e["pid"] == rank and e["args"]["step"] == step]
            require([e["name"] for e in own] == [name for name in row if name], "the row", own)
            for before, after in zip(own, own[1:]):
                require(before["ts"] + before["dur"] <= after["ts"] + 0.002, "one by one", (before, after))
    begins = {(e["name"], e["args"]["step"]): e["ts"] for e in actions}
    for (name, step), begin in begins.items():
        if name[0:2] == "1F":  # works on what stage 0 made
            require(begin > begins[("0" + name[1:], step)], "the sender's first", name)
    waits = [e for e in events if e["ph"] == "X" and e["name"].startswith("wait for")]
    require(waits, "some rank waits", events[:20])
    require(any(e["ph"] == "C" and e["args"]["bytes"] > 0 for e in events), "memory", events[:20])

    predicted, measured = data_of(strata.read("run.html"))["timelines"]
    require(predicted["name"] == "predicted" and measured["name"].startswith("measured, step"),
            "both", (predicted["name"], measured["name"]))
    require(measured["in_seconds"] and measured["span"] > 0, "seconds", measured["span"])
    for lane, row in zip(measured["lanes"], rows):
        names = read_lane(measured, lane)[0]
        require(names == [name for name in row if name], "the measured row", names)
        require(lane["before"] > 0, "bytes", lane["before"])
    xml.etree.ElementTree.fromstring(strata.read("run.svg"))


def trace_gloo(strata):
    check_trace(strata, "gloo")


def trace_threads(strata):
    check_trace(strata, "threads")


# A browser

def pixels(path):
    """The rows of a PNG with 8 bits a channel, as lists of bytes, and the bytes of a pixel."""
    with open(path, "rb") as file:
        png = file.read()
    at, packed = 8, b""
    while at < len(png):
        size, kind = struct.unpack(">I4s", png[at:at + 8])
        if kind == b"IHDR":
            width, height, depth, color = struct.unpack(">IIBB", png[at + 8:at + 18])
        if kind == b"IDAT":
            packed += png[at + 8:at + 8 + size]
        at += size + 12
    each = {2: 3, 6: 4}[color]
    require(depth == 8, "8 bits", depth)
    plain, stride, before, rows = zlib.decompress(packed), width * each, [0] * width * each, []
    for y in range(height):
        line = list(plain[y * (stride + 1) + 1:(y + 1) * (stride + 1)])
        how = plain[y * (stride + 1)]
        for x in range(stride):
            a = line[x - each] if x >= each else 0
            b = before[x]
            c = before[x - each] if x >= each else 0
            if how == 4:
                distances = [abs(b - c), abs(a - c), abs(a + b - 2 * c)]
                guess = (a, b, c)[distances.index(min(distances))]
            else:
                guess = (0, a, b, (a + b) // 2)[how]
            line[x] = (line[x] + guess) & 255
        rows.append(line)
        before = line
    return rows, each


def share_of(path, color):
    rows, each = pixels(path)
    found = total = 0
    for row in rows:
        for x in range(0, len(row), each):
            total += 1
            found += all(abs(row[x + i] - color[i]) < 12 for i in range(3))
    return found / total


# Zooms in and points at the first rank.
POINT = """<script>
zoom(0.5, 0.25);
drawAll();
const box = views[0].canvas.getBoundingClientRect();
views[0].canvas.dispatchEvent(
    new PointerEvent("pointermove", {clientX: box.left + 100, clientY: box.top + 12}));
</script></body>"""


def browser(strata):
    """A page of 64 ranks and 256 micro-batches is drawn within a second, and one can see it."""
    chromium = next(filter(None, map(shutil.which, ["chromium", "chromium-browser", "google-chrome"])), None)
    if not chromium:
        return skipped("there is no chromium here")
    strata.write("wide.lua", WIDE)
    strata.run("plan", "wide.lua", "--html=wide.html", "--svg=wide.svg")
    for name, most in (("wide.html", 4_000_000), ("wide.svg", 1_000_000)):
        size = os.path.getsize(strata.path(name))
        require(size <= most, "at most %d bytes" % most, size)
    data = data_of(strata.read("wide.html"))
    require(data["note"] == "", "everything", data["note"])
    (timeline,) = data["timelines"]
    lanes = [read_lane(timeline, lane) for lane in timeline["lanes"]]

    def look(page, *flags):
        # The path of its socket is too long below a test's folder.
        with tempfile.TemporaryDirectory(dir="/tmp") as folder:
            line = [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                    "--user-data-dir=" + folder, "--window-size=800,700", *flags, "file://" + strata.path(page)]
            return subprocess.run(line, check=True, timeout=300, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  env=dict(os.environ, TMPDIR=folder), text=True).stdout

    def facts():
        root = re.search("<html[^>]*>", look("wide.html", "--dump-dom")).group(0)
        return dict(re.findall('data-([a-z-]+)="([^"]*)"', root))

    found = facts()
    require("draw-ms" in found, "a page that drew itself", found)
    require(int(found["actions"]) == 64 * 256 * 3 == sum(len(names) for names, _ in lanes), "every action", found)
    ends = sum(sum(ends) for _, ends in lanes)
    require(abs(float(found["ends"]) - ends) < 1e-6 * ends, "the ends %r" % ends, found)
    # The machine may be busy with other things: the quickest of some counts.
    times = [float(found["draw-ms"])]
    while times[-1] > 1000 and len(times) < 5:
        times.append(float(facts()["draw-ms"]))
    print("drawn in %s ms; the page has %d bytes" % (times, os.path.getsize(strata.path("wide.html"))))
    require(min(times) <= 1000, "a second at most", times)

    strata.run("plan", *DIGITS, "--schedule=zb_h1", "--html=page.html", "--svg=page.svg")
    strata.write("pointed.html", strata.read("page.html").replace("</body>", POINT))
    shown = look("pointed.html", "--dump-dom")
    tip = re.search(r'<div id="tip"[^>]*>(.*?)</div>', shown, re.S).group(1)
    require(re.match(r"rank 0: 0[FIW]\d\n\w+.* of micro-batch \d, stage 0\n[0-9.]+ to [0-9.]+, "
                     r"takes 1\n(takes .*B, gives .*B\n)?the rank holds .*B after it$", tip),
            "what the pointer is at", tip)
    for page in ("page.html", "page.svg"):
        look(page, "--screenshot=" + strata.path("shot.png"))
        for what, color in (("forwards", (59, 111, 212)), ("backwards", (47, 148, 97)),
                            ("weight gradients", (219, 165, 32))):
            share = share_of(strata.path("shot.png"), color)
            require(share > 0.005, "%s on the screen" % what, (page, share))


if __name__ == "__main__":
    main(globals())
