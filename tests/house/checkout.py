"""Copies of this checkout, for campaigns that change its sources and build them."""

import hashlib
import os
import shutil
import subprocess
import sys


def write_if_new(path, content):
    """Bazel builds again what was written."""
    if os.path.exists(path):
        with open(path, "rb") as file:
            if file.read() == content:
                return
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(content)


def copy_checkout(root, texts, copy):
    """The files of the checkout `root`, with `texts` (by path below it) in place of some and beside others."""
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                            cwd=root, check=True, capture_output=True, text=True)
    paths = {path for path in listed.stdout.split("\0") if os.path.isfile(os.path.join(root, path))}
    for folder, folders, files in os.walk(copy):
        folders[:] = [name for name in folders if not name.startswith("bazel-")]
        for name in files:
            path = os.path.relpath(os.path.join(folder, name), copy)
            if path not in paths and path not in texts and path != "user.bazelrc":
                os.remove(os.path.join(folder, name))
    for path in sorted(paths | set(texts)):
        source, target = os.path.join(root, path), os.path.join(copy, path)
        if path in texts:
            content = texts[path].encode()
        else:
            with open(source, "rb") as file:
                content = file.read()
        write_if_new(target, content)
        if path in paths:
            shutil.copymode(source, target)


def folder_of_copy(root, purpose):
    """In the cache that checkouts share; inside one, Bazel's //... would find it."""
    sys.path.append(os.path.join(root, "tools"))
    import wheels  # of the checkout: a test that only checks has none
    return str(wheels.cache() / (purpose + "-" + hashlib.sha256(root.encode()).hexdigest()[:8]))
