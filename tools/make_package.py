#!/usr/bin/python3
"""Writes the Python wheel and the archive of what Bazel built; //tools:packages calls it.

Both hold one folder: bin/ with the program, the engine's libraries and those of Debian that they need,
share/ with models, documents, data and the manual page. LibTorch is not in it: the wheel requires PyTorch,
the archive is told by $LIBTORCH. The same inputs give the same bytes.

usage: make_package.py --out=FILE.whl|FILE.tar.gz ... FILE...
A file lies in the package as its name says: the program and libraries, models/*.lua, *.md and docs/*, data.
"""

import argparse
import base64
import gzip
import hashlib
import io
import os
import re
import stat
import struct
import subprocess
import sys
import tarfile
import zipfile

PLATFORM = "manylinux_2_36_x86_64"
MOST_BYTES = 20_000_000
# The paths of the loader: beside the library, and for PyTorch beside the package, where pip installs both.
RUN_PATH = "$ORIGIN:$ORIGIN/../../torch/lib"
ARROW_RUN_PATH = "$ORIGIN:$ORIGIN/../../pyarrow"
CUDA_RUN_PATH = RUN_PATH + ":$ORIGIN/../../nvidia/cu13/lib:$ORIGIN/../../nvidia/nccl/lib"
# The libraries that every Linux with this glibc has, and those that LibTorch brings.
SYSTEM = re.compile(r"(libc|libm|libgcc_s|libstdc\+\+|ld-linux-x86-64)\.so(\.\d+)*$")
OF_TORCH = re.compile(r"lib(torch|c10|cudart|nccl)")
OF_ARROW = re.compile(r"lib(arrow|parquet)\.so")
DEBIAN = "/usr/lib/x86_64-linux-gnu"
SUMMARY = "Trains a network that a Lua script describes, cut into a pipeline of stages"


class PackageError(Exception):
    """The package cannot be made of these files; the text says why."""


class Elf:
    """What the loader reads of an x86-64 ELF file."""

    _DYNAMIC, _LOAD = 2, 1
    _NEEDED, _STRTAB, _RUNPATH = 1, 5, 29

    def __init__(self, data, name):
        self.data, self.name = bytearray(data), name
        if data[:6] != b"\x7fELF\x02\x01":
            raise PackageError("%s: expected a 64-bit little-endian ELF file" % name)
        headers, = struct.unpack_from("<Q", data, 32)
        size, count = struct.unpack_from("<HH", data, 54)
        segments = [struct.unpack_from("<IIQQQQQQ", data, headers + i * size) for i in range(count)]
        start, length = next((s[2], s[5]) for s in segments if s[0] == self._DYNAMIC)
        self._entries = [struct.unpack_from("<qQ", data, start + at) for at in range(0, length, 16)]
        address = dict(self._entries)[self._STRTAB]
        load = next(s for s in segments if s[0] == self._LOAD and s[3] <= address < s[3] + s[5])
        self._strings = address - load[3] + load[2]

    def _text(self, offset):
        start = self._strings + offset
        return self.data[start:self.data.index(0, start)].decode()

    def needed(self):
        return [self._text(value) for tag, value in self._entries if tag == self._NEEDED]

    def run_path(self):
        return next((self._text(value) for tag, value in self._entries if tag == self._RUNPATH), "")

    def set_run_path(self, path):
        """In place of the one that is there, which must be as long or longer."""
        offset = next((value for tag, value in self._entries if tag == self._RUNPATH), None)
        room = len(self.run_path())
        if offset is None or len(path) > room:
            raise PackageError("%s: its run path has %d characters, %d are needed" % (self.name, room, len(path)))
        start = self._strings + offset
        self.data[start:start + room] = path.encode().ljust(room, b"\0")


def version_of(files):
    """What launcher/version.h says."""
    header = next(path for path in files if path.endswith("launcher/version.h"))
    with open(header) as file:
        return re.search(r'kVersion = "(.*)"', file.read()).group(1)


def pinned(files, pins, name):
    """The version of a package whose libraries ours are linked to."""
    with open(next(path for path in files if path.endswith(pins))) as file:
        return re.search(r"^%s==(\S+)" % name, file.read(), re.MULTILINE).group(1)


def read(path):
    with open(path, "rb") as file:
        return file.read()


def of_debian(wanted):
    """{name: content} of libraries that a computer may lack, and need nothing but each other."""
    found = {name: read(os.path.join(DEBIAN, name)) for name in sorted(wanted)}
    for name, content in found.items():
        beyond = [n for n in Elf(content, name).needed() if not SYSTEM.match(n) and n not in wanted]
        if beyond:
            raise PackageError("%s needs %s, which is in no package" % (name, ", ".join(beyond)))
    return found


def needed_of_debian(elf):
    """Names of what neither every Linux nor LibTorch nor Arrow has."""
    others = (SYSTEM, OF_TORCH, OF_ARROW)
    return {needed for needed in elf.needed() if not any(library.match(needed) for library in others)}


def binaries(files):
    """{name: content} of the program, the engine's libraries, and of Debian's that they need."""
    ours = {os.path.basename(path): path for path in files
            if os.path.basename(path) == "strata" or path.endswith(".so")}
    found, wanted = {}, set()
    for name, path in sorted(ours.items()):
        elf = Elf(read(path), name)
        paths = {"libstrata_cuda.so": CUDA_RUN_PATH, "libstrata_arrow.so": ARROW_RUN_PATH}
        elf.set_run_path(paths.get(name, RUN_PATH))
        wanted |= needed_of_debian(elf)
        found[name] = bytes(elf.data)
    return dict(found, **of_debian(wanted))


def manual_page(files):
    """The page that the program prints of itself."""
    program = next(path for path in files if os.path.basename(path) == "strata")
    return subprocess.run([program, "help", "--man"], check=True, capture_output=True).stdout


def shared(files):
    """{path: content} of all that is no code."""
    places = {".lua": "models", ".csv": "data", ".txt": "data"}
    found = {"man/man1/strata.1": manual_page(files)}
    for path in files:
        name, ending = os.path.basename(path), os.path.splitext(path)[1]
        folder = re.search(r"(?:^|/)((?:docs|models)(?:/.*)?)/[^/]*$", path)
        if folder:
            found[folder.group(1) + "/" + name] = read(path)
        elif ending in places and name not in ("arrow.txt", "wheels.txt"):
            found[places[ending] + "/" + name] = read(path)
        elif ending == ".md":
            found["docs/" + name] = read(path)
    return found


def licences(files):
    """{name: text} of the licences that THIRD_PARTY.md names as Debian's files."""
    table = next((read(path).decode() for path in files if path.endswith("THIRD_PARTY.md")), "")
    return {package: read("/usr/share/doc/%s/copyright" % package)
            for package in re.findall(r"\| `([a-z0-9+.-]+)` \|", table)}


def folder_of(files):
    """{path: (content, executable)} of the folder that both packages hold."""
    tree = {"bin/" + name: (data, True) for name, data in binaries(files).items()}
    tree.update({"share/" + path: (data, False) for path, data in shared(files).items()})
    tree.update({"share/licences/" + name: (data, False) for name, data in licences(files).items()})
    return tree


def wheel(version, tree, files):
    """The wheel's bytes. https://packaging.python.org/en/latest/specifications/binary-distribution-format"""
    info = "strata-%s.dist-info" % version
    module = next(os.path.dirname(path) for path in files if path.endswith("python/__main__.py"))
    entries = {"strata/" + path: entry for path, entry in tree.items() if not path.startswith("share/man/")}
    for name in ("__init__.py", "__main__.py", "follow.py"):
        text = read(os.path.join(module, name)).replace(b"@VERSION@", version.encode())
        entries["strata/" + name] = (text, False)
    page = tree["share/man/man1/strata.1"]
    entries["strata-%s.data/data/share/man/man1/strata.1" % version] = page
    entries[info + "/METADATA"] = (metadata(version, files).encode(), False)
    entries[info + "/WHEEL"] = (("Wheel-Version: 1.0\nGenerator: strata tools/make_package.py\n"
                                 "Root-Is-Purelib: false\nTag: py3-none-%s\n" % PLATFORM).encode(), False)
    entries[info + "/entry_points.txt"] = (b"[console_scripts]\nstrata = strata.__main__:main\n", False)
    record = "".join("%s,sha256=%s,%d\n" % (path, digest(data), len(data))
                     for path, (data, _) in sorted(entries.items()))
    entries[info + "/RECORD"] = ((record + info + "/RECORD,,\n").encode(), False)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for path, (data, executable) in sorted(entries.items()):
            entry = zipfile.ZipInfo(path)  # of 1980
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (stat.S_IFREG | (0o755 if executable else 0o644)) << 16
            archive.writestr(entry, data)
    return buffer.getvalue()


def metadata(version, files):
    return ("Metadata-Version: 2.1\nName: strata\nVersion: %s\nSummary: %s\n"
            "Requires-Python: >=3.8\nRequires-Dist: torch==%s\n"
            "Provides-Extra: arrow\nRequires-Dist: pyarrow==%s; extra == \"arrow\"\n"
            % (version, SUMMARY, pinned(files, "wheels.txt", "torch"), pinned(files, "arrow.txt", "pyarrow")))


def digest(data):
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def tarball(version, tree):
    """The archive's bytes: one folder with the version in its name."""
    buffer = io.BytesIO()
    with gzip.GzipFile(fileobj=buffer, mode="wb", compresslevel=9, mtime=0) as packed:
        with tarfile.open(fileobj=packed, mode="w") as archive:
            for path, (data, executable) in sorted(tree.items()):
                entry = tarfile.TarInfo("strata-%s/%s" % (version, path))
                entry.size, entry.mode = len(data), 0o755 if executable else 0o644
                archive.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", action="append", required=True)
    parser.add_argument("files", nargs="+")
    arguments = parser.parse_args()
    version, tree = version_of(arguments.files), folder_of(arguments.files)
    for out in arguments.out:
        if "-%s-" % version not in os.path.basename(out):
            raise PackageError("%s: launcher/version.h says %s; tools/BUILD names the files" % (out, version))
        data = wheel(version, tree, arguments.files) if out.endswith(".whl") else tarball(version, tree)
        if len(data) > MOST_BYTES:
            raise PackageError("%s has %d bytes, more than %d" % (out, len(data), MOST_BYTES))
        with open(out, "wb") as file:
            file.write(data)


if __name__ == "__main__":
    try:
        main()
    except (PackageError, OSError, subprocess.CalledProcessError) as error:
        sys.exit("error: %s" % error)
