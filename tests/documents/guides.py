#!/usr/bin/env python3
"""The guides against the program: every block of a page of docs/guides/ runs, in the page's order, in one
folder that holds nothing but models/, and what it shows is compared.

usage: guides.py STRATA MODELS PAGE...     compares: exit code 1 where a page is wrong
       guides.py STRATA MODELS write=PAGE  prints the page with what its commands show now

A block whose first line is a comment with `file: NAME` is written to that file (```text and ```json without
the comment); one without is a part of a file that is there. A block ```console has commands
behind `$ ` and below each what it shows, errors too; `...` stands for any lines, or for any rest of a line.
Of numbers that differ from run to run (with a decimal point, or before a unit of time or memory) only the
place is compared.
"""

import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.dirname(HERE))
import program
from program import require

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"^(?://|--|#) file: (\S+)\n|^# file: (\S+)\n")
_UNIT = r" (?:ns|us|ms|s|B|KiB|MiB|GiB|samples/s|tokens/s|kFLOP|MFLOP|GFLOP)\b"
_NUMBER = re.compile(r"\d[\d,]*\.\d+(?:e[-+]\d+)?(?:%s)?|\d[\d,]*%s" % (_UNIT, _UNIT))
_MOST_LINES = 200
_WITHOUT_MARK = ("text", "json")
_GUIDES = os.path.join(HERE, "../../docs/guides")


def prepare(strata):
    """`strata` is a command in the folder where the blocks run."""
    os.mkdir(strata.path(".site"))
    os.symlink(os.path.join(HERE, "sitecustomize.py"), strata.path(".site/sitecustomize.py"))
    os.mkdir(strata.path(".bin"))
    os.symlink(strata.binary, strata.path(".bin/strata"))
    embedding = os.path.join(strata.root, "tests/documents/embedding")
    if os.path.exists(embedding):
        os.symlink(embedding, strata.path(".bin/embedding"))
    os.mkdir(strata.path("work"))
    os.symlink(os.path.abspath(strata.models), strata.path("work/models"))


def environment_of(strata):
    folders = [strata.path(".site")]
    for package in ["pytorch", "peft", "arrow"]:
        listed = os.path.join(os.path.dirname(strata.root), package, "folder.txt")
        if os.path.exists(listed):
            with open(listed) as file:
                folders.append(file.read().strip())
    return dict(os.environ, PATH=strata.path(".bin") + ":/usr/bin:/bin", COLUMNS="120", PYTHONPATH=":".join(folders),
                PYTHONDONTWRITEBYTECODE="1", PYTHONWARNINGS="ignore", OMP_NUM_THREADS="1", CUDA_VISIBLE_DEVICES="",
                TRANSFORMERS_VERBOSITY="error", HF_HUB_DISABLE_PROGRESS_BARS="1", HF_HUB_OFFLINE="1")


# What a machine shows on which other work runs: stragglers, and the progress of what takes seconds.
_SLOW = re.compile(r"step +\d+/\d+  rank \d+ is slow: |strata: .*, (\d+ %|[\d,]+ of [\d,]+)$")


def shown_by(strata, command):
    """What the command writes, without the folder's name and what only a slow machine shows."""
    ran = subprocess.run(["bash", "-c", command], cwd=strata.path("work"), env=environment_of(strata),
                         stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                         timeout=600)
    lines = ran.stdout.replace(strata.path("work") + "/", "").rstrip("\n").split("\n") if ran.stdout.strip() else []
    return [line for line in lines if not _SLOW.match(line)]


def commands_of(block):
    """[[command, [line, ...]], ...]; a line that ends in a backslash goes on."""
    commands = []
    lines = iter(block.rstrip("\n").split("\n"))
    for line in lines:
        if line.startswith("$ "):
            command = line[2:]
            while command.endswith("\\"):
                command = command[:-1] + next(lines).strip()
            commands.append([command, []])
        else:
            require(commands, "a command before what it shows", block)
            commands[-1][1].append(line)
    return commands


def fits(line, actual):
    line, actual = (" ".join(_NUMBER.sub("#", text).split()) for text in (line, actual))
    return re.fullmatch(".*".join(map(re.escape, line.split("..."))), actual) is not None


def same(expected, actual):
    """Whether the lines fit; `...` alone stands for any number of lines."""
    if not expected:
        return not actual
    if expected[0].strip() == "...":
        return any(same(expected[1:], actual[i:]) for i in range(len(actual) + 1))
    return bool(actual) and fits(expected[0], actual[0]) and same(expected[1:], actual[1:])


def check_part(strata, text):
    """A part of a script stands in a script that is there, apart from where its lines begin."""
    scripts = []
    for folder, _, names in os.walk(strata.path("work")):
        for name in names:
            if name.endswith(".lua"):
                with open(os.path.join(folder, name)) as file:
                    scripts.append(re.sub(r"\s+", "", file.read()))
    require(any(re.sub(r"\s+", "", text) in script for script in scripts), "a script with this part", text)


def write_file(strata, language, block):
    """Writes a block that names its file; False where it names none."""
    named = _FILE.match(block)
    if not named:
        return False
    name = named.group(1) or named.group(2)
    text = block[named.end():] if language in _WITHOUT_MARK else block
    path = os.path.join(strata.path("work"), name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write(text)
    return True


def check(strata, page):
    """Runs all blocks of the page."""
    with open(os.path.join(_GUIDES, page + ".md")) as file:
        text = file.read()
    require(text.count("\n") <= _MOST_LINES, "at most %d lines" % _MOST_LINES, page)
    prepare(strata)
    count = 0
    for language, block in _BLOCK.findall(text):
        count += 1
        if write_file(strata, language, block):
            if language == "cpp":
                with open(os.path.join(HERE, "embedding.cc")) as file:
                    require(file.read() == block, "the source that is built", block)
        elif language == "console":
            for command, expected in commands_of(block):
                actual = shown_by(strata, command)
                require(same(expected, actual), "$ %s\n%s" % (command, "\n".join(expected)), "\n".join(actual))
        else:
            check_part(strata, block)
    require(count > 0, "blocks", page)
    print("%s: %d blocks" % (page, count))


def shortened(lines):
    """Of many steps the first and the last; of them and of a plan not what may change with others."""
    kept = []
    for i, line in enumerate(lines):
        line = re.sub(r"^(step .*  lr \S+)  .*", r"\1  ...", line)
        inner = all(0 <= j < len(lines) and lines[j].startswith("step ") for j in (i - 1, i, i + 1))
        if not inner:
            kept.append(re.sub(r"; cuts .*", "; cuts ...", line))
        elif kept[-1] != "...":
            kept.append("...")
    return kept


def rewritten(strata, page):
    """The page with what its commands show now."""
    with open(os.path.join(_GUIDES, page + ".md")) as file:
        text = file.read()
    prepare(strata)

    def anew(match):
        language, block = match.groups()
        if write_file(strata, language, block) or language != "console":
            return match.group(0)
        lines = []
        for command, expected in commands_of(block):
            actual = shown_by(strata, command)
            lines += ["$ " + command] + (expected if expected and same(expected, actual) else shortened(actual))
        return "```console\n%s\n```" % "\n".join(lines)

    return _BLOCK.sub(anew, text)


if __name__ == "__main__":
    for argument in sys.argv[3:]:
        mode, _, name = argument.rpartition("=")
        strata = program.Program(sys.argv[1], sys.argv[2])
        if mode == "write":
            print(rewritten(strata, name), end="")
        else:
            check(strata, name)
