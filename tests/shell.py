#!/usr/bin/env python3
"""What a shell, an editor and a newcomer are told by the program.

usage: shell.py STRATA MODELS TEST...
"""

import json
import os
import re
import shutil
import subprocess

import program
from program import require


def completed(strata, shell, *words):
    """What the shell offers for `strata WORDS`, of which the last is unfinished."""
    script = strata.write("completion." + shell, strata.run("completion", shell))
    if shell == "bash":
        text = 'source "$1"; shift; COMP_WORDS=(strata "$@"); COMP_CWORD=$#; _strata; printf "%s\\n" "${COMPREPLY[@]}"'
        line = ["bash", "-c", text, "bash", script, *words]
    else:
        text = ('autoload -U compinit && compinit -D -u; source "$1"; shift; emulate -L sh; setopt ksharrays; '
                'COMP_WORDS=(strata "$@"); COMP_CWORD=$#; _strata; printf "%s\\n" "${COMPREPLY[@]}"')
        line = ["zsh", "-f", "-c", text, "zsh", script, *words]
    ran = subprocess.run(line, cwd=strata.folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    require(ran.returncode == 0 and not ran.stderr, "no error of " + shell, ran.stderr)
    found = [word.rstrip(" ") for word in ran.stdout.split("\n")[:-1]]
    return [word for word in found if shell == "bash" or word.startswith(words[-1])]  # zsh looks later


def completes(strata, shell):
    def offers(words, *wanted):
        found = completed(strata, shell, *words)
        for word in wanted:
            require(word in found, word, "%s: %s" % (words, found))
        return found

    offers(["tr"], "train")
    offers(["train", "--optimizer."], "--optimizer.lr=", "--optimizer.betas=")
    offers(["plan", "--au"], "--auto=")
    require("--seed_fn=" not in offers(["train", "--see"], "--seed="), "a function is no flag", shell)
    offers(["train", "dig"], "digits")
    offers(["help", "nn.Conv"], "nn.Conv2d")
    require(offers(["help", "sch"]) == ["schedule"], "the key alone", offers(["help", "sch"]))
    if shell == "bash":  # which cuts words at the `=`
        require(offers(["train", "--transport", "="], "threads") != offers(["doctor", "--transport", "="], "nccl"),
                "the key's values, and those of doctor's own flag", "")
        require("false" not in offers(["train", "--links", "="]), "a file", "")
        offers(["doctor", "--links", "="], "false", "true")
        offers(["train", "--precision", "="], "bf16", "fp16")
        require("zb_h1" not in offers(["train", "--lr_schedule.schedules", "="]), "no schedule of a pipeline", "")
        strata.write("mine.lua", "")
        offers(["train", "mi"], "mine.lua")
        offers(["train", "--schedule", "=", "zb_"], "zb_h1", "zb_h2")
        offers(["train", "--device", "="], "cpu", "cuda")
    else:
        offers(["train", "--schedule=zb_"], "--schedule=zb_h1")
        offers(["train", "--device="], "--device=cpu")


def bash(strata):
    completes(strata, "bash")


def zsh(strata):
    if not shutil.which("zsh"):
        return program.skipped("there is no zsh here (apt-get install zsh)")
    return completes(strata, "zsh")


def help(strata):
    """`strata help X` is what the prompt's `X?` prints."""
    for topic in ("nn.Conv2d", "schedule", "optimizer", "strata.read", "nn", "strata.schedule"):
        prompt = strata.run("repl", stdin=topic + "?\n")
        require(strata.run("help", topic) == prompt, "the prompt's help of " + topic, prompt)
    strata.run("help", "trian", code=2, says="did you mean \"train\"")
    strata.run("help", "nn.Conv2", code=2, says="Conv2d")
    commands = [[command["name"]] for command in json.loads(strata.run("help", "--json"))["commands"]]
    for topic in [[], *commands]:
        wide = [line for line in strata.run("help", *topic).splitlines() if len(line) > 80]
        require(not wide, "lines of 80 columns", wide)


def manual(strata):
    """The manual page has all commands and keys, and man reads it."""
    page = strata.run("help", "--man")
    told = json.loads(strata.run("help", "--json"))
    for command in told["commands"]:
        require("\n.SS strata " + command["name"] + " " in page, command["name"], page[:2000])
    for key in told["flags"]:
        require("\\-\\-" + key["name"] + "\\fR=" in page, key["name"], page[-2000:])
    if shutil.which("man"):
        path = strata.write("strata.1", page)
        ran = subprocess.run(["man", "--warnings", "-l", path], text=True, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, env=dict(os.environ, MANWIDTH="100"))
        require(ran.returncode == 0 and not ran.stderr and "--nproc" in ran.stdout, "no warning of man", ran.stderr)


def models(strata):
    """A model that comes along is found by its name, anywhere; a file of the name comes first."""
    strata.run("train", "digits", "--steps=1", "--transport=threads", says="digits: 10 layers")
    strata.run("plan", "digts", code=2, says="did you mean \"digits\"")
    strata.write("digits", "return 1")
    strata.run("plan", "digits", code=2, says="must return a job")


def new(strata):
    """Each template trains as it is, shorter, and predicts; nothing is replaced."""
    for template in ("vision", "language", "tabular"):
        strata.run("new", template, "--template=" + template)
        script = os.path.join(template, "train.lua")
        commands = re.findall("    strata (.*?)(?: +#.*)?\n", strata.read(template + "/README.md"))
        require(len(commands) == 3, "three commands", commands)
        strata.run("train", script, "--steps=6", "--save.dir=" + template + "_runs", says="test loss")
        strata.run("eval", script, "--weights=" + template + "_runs", says="loss")
    strata.run("new", "vision", code=2, says="is there already")
    strata.run("new", "x", "--template=visoin", code=2, says="vision")


def types(strata):
    """The annotations are Lua, have everything, and are written anew; settings of the user's stay."""
    strata.run("types")
    text = strata.read(".strata/strata.lua")
    told = json.loads(strata.run("help", "--json"))
    for kind in ("layers", "sources"):
        for made in told[kind]:
            require("\nfunction " + made["name"] + "(" in text, made["name"], text[:1000])
    for function in told["functions"]:
        require("\nfunction " + function["name"] + "(" in text, function["name"], text[-3000:])
    require("---@field kernel_size? integer|integer[]" in text, "a field of Conv2d", text[:1000])
    require(strata.json(".luarc.json")["workspace.library"] == [".strata"], "the folder", "")
    # As Lua reads it: a file of functions.
    strata.write("strata_types.lua", text)
    strata.write("reads.lua", "local library = require 'strata_types'\nprint(type(library.read))")
    strata.run("run", "reads.lua", says="function")
    strata.write(".luarc.json", "{}")
    strata.run("types", says=".luarc.json: is there, stays")
    require(strata.read(".luarc.json") == "{}", "the user's own", "")


def luacheck(strata):
    """luacheck finds nothing in what is shipped."""
    if not shutil.which("luacheck"):
        return program.skipped("there is no luacheck here (apt-get install lua-check)")
    root = strata.root
    ran = subprocess.run(["luacheck", "--no-color", "--config", root + "/.luacheckrc", root + "/models",
                          root + "/tests/tasks"], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    require(ran.returncode == 0 and " 0 warnings" in ran.stdout, "no warning", ran.stdout)
    return print(ran.stdout.splitlines()[-1])


if __name__ == "__main__":
    program.main(globals())
