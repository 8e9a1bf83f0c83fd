"""Pinned wheels: downloaded with pip, checked, and the wanted files unpacked into a cache folder."""

import concurrent.futures
import contextlib
import fcntl
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import threading
import time
import zipfile

# The wheels were made for this Python; any other may download them too.
_FOR_PYTHON = ["--python-version=3.11", "--implementation=cp", "--abi=cp311", "--abi=none"]
_PLATFORMS = [f"manylinux_2_{minor}_x86_64" for minor in range(28, 4, -1)] + [
    "manylinux2014_x86_64", "manylinux2010_x86_64", "manylinux1_x86_64", "any"]


class SetupError(Exception):
    """A step of the set-up failed; the text says what and what to do."""


def cache():
    """The folder that all checkouts of this user share."""
    folder = os.environ.get("STRATA_CACHE")
    if not folder:
        root = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
        folder = pathlib.Path(root) / "strata"
    return pathlib.Path(folder).absolute()


def pins(file):
    """The lines `name==version --hash=sha256:...` of a pin file, in its order."""
    lines = [line.strip() for line in pathlib.Path(file).read_text().splitlines()]
    lines = [line for line in lines if line and not line.startswith("#")]
    for line in lines:
        if not re.fullmatch(r"[\w.-]+==[\w.]+ --hash=sha256:[0-9a-f]{64}", line):
            raise SetupError(f"{file}: not a pinned wheel: {line}")
    return lines


def digest(file):
    """Names a pin file's content in 12 hexadecimal digits; comments do not count."""
    return hashlib.sha256("\n".join(pins(file)).encode()).hexdigest()[:12]


def install(file, target, wanted, title):
    """Puts the files of all wheels of a pin file for which wanted(path) holds into the folder target.

    The folder appears whole or not at all; wheels that were unpacked before an interruption are not
    downloaded again, and of two set-ups at once one waits for the other.
    """
    if target.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with _locked(target.with_name(target.name + ".lock")):
        if target.exists():
            return
        partial = target.with_name(target.name + ".partial")
        (partial / ".done").mkdir(parents=True, exist_ok=True)
        _install_all(pins(file), partial, wanted, title)
        shutil.rmtree(partial / ".done")
        partial.rename(target)


@contextlib.contextmanager
def _locked(path):
    with open(path, "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"  waiting for another set-up that holds {path}", file=sys.stderr, flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _install_all(lines, partial, wanted, title):
    with _Progress(title, partial, len(lines)) as progress:
        with concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:
            jobs = [pool.submit(_install_one, line, partial, wanted) for line in lines]
            for job in concurrent.futures.as_completed(jobs):
                if job.exception():
                    pool.shutdown(wait=False, cancel_futures=True)
                job.result()
                progress.wheel_done()


def _install_one(line, partial, wanted):
    name = line.split("==")[0]
    done = partial / ".done" / name
    if done.exists():
        return
    folder = partial / ".done" / (name + ".wheel")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    with zipfile.ZipFile(_download(line, folder)) as wheel:
        for member in wheel.infolist():
            if wanted(member.filename) and not member.is_dir():
                wheel.extract(member, partial)
    shutil.rmtree(folder)
    done.touch()


def _download(line, folder):
    """The path of the wheel, whose hash pip has checked."""
    requirements = folder / "requirements.txt"
    requirements.write_text(line + "\n")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-cache-dir",
               "--require-hashes", "--only-binary=:all:", "--disable-pip-version-check",
               *_FOR_PYTHON, *(f"--platform={platform}" for platform in _PLATFORMS),
               f"--dest={folder}", f"--requirement={requirements}"]
    result = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True,
                            env={**os.environ, "TMPDIR": str(folder)})
    if result.returncode:
        raise SetupError(f"could not download {line.split()[0]}:\n{result.stdout.strip()}")
    return next(folder.glob("*.whl"))


class _Progress:
    """One line on a terminal that tells how many wheels are done and how much is on the disk."""

    def __init__(self, title, folder, wheels):
        self._title = title
        self._folder = folder
        self._wheels = wheels
        self._done = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def wheel_done(self):
        self._done += 1

    def __enter__(self):
        if sys.stderr.isatty():
            self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
            print("\r\033[K", end="", file=sys.stderr, flush=True)

    def _run(self):
        while not self._stop.wait(0.5):
            text = f"\r\033[K  {self._title}: {self._done} of {self._wheels} wheels, {_size(self._folder) / 1e9:.1f} GB"
            print(text, end="", file=sys.stderr, flush=True)


def _size(folder):
    """Bytes in a folder that changes while we look."""
    total = 0
    for root, _, files in os.walk(folder):
        for name in files:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(root, name)).st_size
    return total
