"""Pinned wheels: downloaded and checked by pip, of which only the wanted files are kept."""

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

# The Python version and platform of the wheels. These are downloaded whichever Python runs here.
_TAGS = ["--python-version=3.11", "--implementation=cp", "--abi=cp311", "--abi=none"] + [
    f"--platform={platform}"
    for platform in ["manylinux2014_x86_64", "manylinux2010_x86_64", "manylinux1_x86_64", "any"]
    + [f"manylinux_2_{minor}_x86_64" for minor in range(5, 29)]
]


class SetupError(Exception):
    """A step of the set-up failed; the text says what and what to do."""


def cache():
    """The folder that all checkouts of this user share; tools/lib.sh says the same in bash."""
    folder = os.environ.get("STRATA_CACHE")
    if not folder:
        folder = (os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) + "/strata"
    return pathlib.Path(folder).absolute()


def read_pins(file):
    """The lines `name==version --hash=sha256:...` of a pin file, in its order."""
    lines = [line.strip() for line in pathlib.Path(file).read_text().splitlines()]
    lines = [line for line in lines if line and not line.startswith("#")]
    for line in lines:
        if not re.fullmatch(r"[\w.-]+==[\w.]+ --hash=sha256:[0-9a-f]{64}", line):
            raise SetupError(f"{file}: expected `name==version --hash=sha256:...`, got: {line}")
    return lines


def pin_of(file, name):
    return next(pin for pin in read_pins(file) if pin.startswith(name + "=="))


def digest(pins):
    """Names a set of pins in 12 hexadecimal digits."""
    return hashlib.sha256("\n".join(pins).encode()).hexdigest()[:12]


def make_once(target, make):
    """Lets make(partial) create the file or folder `target` unless it exists.

    `target` appears whole or not at all. `partial` is the same at every attempt, so that make can go on
    where an interrupted one stopped. Of two set-ups at once one waits for the other.
    """
    if target.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with _locked(target.with_name(f".{target.name}.lock")):
        if not target.exists():
            partial = target.with_name(f"{target.name}.partial")
            make(partial)
            # The final name means that the content is complete, so the content is written to disk before the renaming.
            subprocess.run(["sync", "--file-system", partial], check=True)
            partial.rename(target)


def unpack(pins, folder, wanted, title):
    """Adds to the folder the files of all pinned wheels for whose path wanted(path) holds."""
    done = folder / ".done"
    done.mkdir(parents=True, exist_ok=True)
    with _Progress(title, folder, len(pins)) as progress:
        with concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:
            jobs = [pool.submit(_unpack_one, pin, folder, done, wanted) for pin in pins]
            try:
                for job in concurrent.futures.as_completed(jobs):
                    job.result()
                    progress.count += 1
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
    shutil.rmtree(done)


def run(main):
    """Runs a script's main(): prints its answer, or why there is none."""
    try:
        print(main())
    except (SetupError, OSError) as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit(130)


@contextlib.contextmanager
def _locked(path):
    with open(path, "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"  waiting for another set-up to finish ({path})", file=sys.stderr, flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _unpack_one(pin, folder, done, wanted):
    """Does nothing if an earlier attempt got here: a file in `done` tells."""
    marker = done / pin.split("==")[0]
    if marker.exists():
        return
    scratch = marker.with_suffix(".scratch")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    with zipfile.ZipFile(_download(pin, scratch)) as wheel:
        wheel.extractall(folder, [name for name in wheel.namelist() if wanted(name)])
    shutil.rmtree(scratch)
    marker.touch()


def _download(pin, scratch):
    """The path of the wheel, whose hash pip has checked."""
    requirements = scratch / "requirements.txt"
    requirements.write_text(pin + "\n")
    options = ["--quiet", "--no-deps", "--no-cache-dir", "--require-hashes", "--only-binary=:all:",
               "--disable-pip-version-check", f"--dest={scratch}", f"--requirement={requirements}"]
    result = subprocess.run(
        [sys.executable, "-m", "pip", "download", *options, *_TAGS],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env={**os.environ, "TMPDIR": str(scratch)})
    if result.returncode:
        raise SetupError(f"could not download {pin.split()[0]}\n{result.stdout.strip()}")
    return next(scratch.glob("*.whl"))


class _Progress:
    """Shows a step as tools/lib.sh does: how many wheels are done, how much is on the disk."""

    def __init__(self, title, folder, wheels):
        self.count = 0
        self._title = title
        self._folder = folder
        self._wheels = wheels
        self._start = time.monotonic()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, error, *_):
        self._stop.set()
        self._thread.join()
        if not error:
            seconds = time.monotonic() - self._start
            self._show(f"{_gigabytes(self._folder)} installed, {seconds:.0f} s\n")
        elif sys.stderr.isatty():
            self._show("")

    def _run(self):
        while not self._stop.wait(0.5 if sys.stderr.isatty() else 60):
            text = f"{self.count} of {self._wheels} wheels, {_gigabytes(self._folder)}"
            self._show(text if sys.stderr.isatty() else text + "\n")

    def _show(self, text):
        clear = "\r\033[K" if sys.stderr.isatty() else ""
        line = f"{clear}  {self._title:<10} {text}" if text else clear
        print(line, end="", file=sys.stderr, flush=True)


def _gigabytes(folder):
    """The size of a folder that changes while we look, as text."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(parent, name)).st_size
    return f"{total / 1e9:.1f} GB" if total >= 1e8 else f"{total / 1e6:.1f} MB"
