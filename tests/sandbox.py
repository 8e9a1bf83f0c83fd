#!/usr/bin/env python3
"""Scripts that try to get out of the sandbox, and scripts that try to use up the machine, each through `strata run`.

usage: sandbox.py STRATA MODELS TEST...
"""

import os
import resource
import signal
import time

import program
from program import require

# Each gives something true if it got out.
ESCAPES = {
    "io": "io", "os": "os", "debug": "debug", "ffi": "ffi", "jit": "jit", "package": "package",
    "dofile": "dofile", "loadfile": "loadfile", "getfenv": "getfenv", "setfenv": "setfenv",
    "newproxy": "newproxy", "module": "module", "string.dump": "string.dump",
    "require io": "require 'io'", "require os": "require 'os'", "require ffi": "require 'ffi'",
    "require jit.util": "require 'jit.util'", "require debug": "require 'debug'",
    "require a C library": "require 'libm.so.6'", "require above": "require '../outside'",
    "require by an absolute path": "require '/etc/passwd'",
    "the loaded table": "_G.package and _G.package.loaded or _LOADED",
    "the registry through a metatable": "getmetatable(print)",
    "the metatable of texts": "type(getmetatable('')) == 'table'",
    "changing the metatable of texts": "pcall(setmetatable, '', {__index = {}}) or nil",
    "texts' methods by another name": "(''):dump()",
    "bytecode of LuaJIT": "(load('\\27LJ\\2\\0'))", "bytecode of Lua": "(load('\\27Lua'))",
    "bytecode in pieces": "(load(coroutine.wrap(function() coroutine.yield '\\27' coroutine.yield 'LJ' end)))",
    "bytecode by loadstring": "(loadstring('\\27LJ\\2\\0', 'x'))",
    "an environment for load": "(load('return io', 'x', 't', {}))()",
    "a closure's environment": "pcall(load, 'x = getfenv(1)') and x",
    "the frames of a coroutine": "coroutine.running() and debug and debug.getinfo",
    "strata.read above": "strata.read('../outside')", "strata.read /etc/passwd": "strata.read('/etc/passwd')",
    "strata.read a folder's parent": "strata.read('folder/../../outside')",
    "strata.read /proc/self/environ": "strata.read('/proc/self/environ')",
    "strata.load above": "strata.load('../outside.conf')",
    "strata.load by an absolute path": "strata.load(OUTSIDE .. '/outside.conf')",
    "a trace above": "strata.load('job.lua'):train{trace = '../trace.json'}",
    "a trace by an absolute path": "strata.load('job.lua'):train{trace = OUTSIDE .. '/trace.json'}",
    "a trace in the place of another file": "strata.load('job.lua'):train{trace = 'job.lua'}",
    "saves above": "strata.load('job.lua'):train{save = {dir = '../saves'}}",
    "saves in the place of another training's": "strata.load('job.lua'):train{save = {dir = '../saves'}, "
                                                "resume = '../saves'}",
    "a data source above": "tostring(strata.data.csv{path = '/etc/passwd'})",
    "a metatable of strata's objects": "type(getmetatable(strata.nn.ReLU{})) == 'table'",
    "the metatable of a tensor": "type(getmetatable(F.ones{1})) == 'table'",
}

# Each would take all memory, or for ever; a script is told so and ends.
BOMBS = {
    "tables": "local t = {} for i = 1, 1e9 do t[i] = {nil, nil, nil, nil, nil, nil, nil, nil, 1} end",
    "a text that doubles": "local s = 'x' while true do s = s .. s end",
    "a repeated text": "return ('x'):rep(1e9)",
    "a repeated gap": "return ('x'):rep(1e5, ('y'):rep(1e5))",
    "texts in a table": "local t = {} while true do t[#t + 1] = ('x'):rep(1e6) .. #t end",
    "gsub": "return ('x'):rep(1e6):gsub('x', ('y'):rep(1e6))",
    "concat": "local s = ('x'):rep(5e7) local t = {} for i = 1, 100 do t[i] = s end return table.concat(t)",
    "coroutines": "local t = {} for i = 1, 1e8 do t[i] = coroutine.create(print) end",
    "load": "return assert(load(function() return ('x = 1 '):rep(1e6) end))",
    "recursion": "local function f() return 1 + f() end f()",
    "arguments": "local function f(...) return f(1, 2, 3, 4, ...) end f()",
    "varargs": "return select('#', unpack({}, 1, 1e8))",
    "metamethods": "local t = setmetatable({}, {__index = function(t, k) return t[k] .. 1 end}) return t.x",
    "parentheses": "assert(load('return ' .. ('('):rep(1e5)))",
    "a pattern that recurses": "return ('x'):rep(1e6):find(('x?'):rep(1e4))",
    "JSON that doubles": "local t = {1} for i = 1, 30 do t = {t, t} end return strata.json.encode(t)",
    "JSON that nests": "return strata.json.decode(('['):rep(1e6))",
    "a table in itself": "local t = {} t[1] = t return strata.json.encode(t)",
    "a huge tensor": "return F.empty{2^50}",
    "many tensors": "local t = {} for i = 1, 1e6 do t[i] = F.empty{2^28} end",  # memory that nobody touches
    "layers": "return strata.times(1e9, function() return strata.nn.ReLU{} end)",
}

# LuaJIT looks at nothing meanwhile: Ctrl-C, and once more.
DEAF = "local s = ('a'):rep(30000) s:find(('.-'):rep(12) .. 'b')"

# Within its own folder the same is allowed.
ALLOWED = [
    "strata.load('job.lua')", "strata.load('job.conf')",
    "strata.load('job.lua'):train{trace = 'trace.json', save = {dir = 'saves'}}",
    "strata.load('job.lua'):start{resume = 'saves'}", "strata.load('job.lua'):start{weights = '../saves'}",
]

JOB = """
local strata = require "strata"
return strata.job {
  layers = { strata.nn.Linear{2, 2} }, loss = strata.nn.MSELoss{}, steps = 1, device = "cpu", threads = 1,
  batch = { micro_batches = 1, micro_batch_size = 1 },
  data = function() return strata.F.ones{1, 2}, strata.F.ones{1, 2} end,
}
"""

HEAD = "local strata = require 'strata'\nlocal F = strata.F\n"


def escapes(strata):
    require(len(ESCAPES) >= 40, "40 escapes", len(ESCAPES))
    strata.write("outside", "secret")
    strata.write("outside.conf", JOB)
    outside = strata.folder
    strata.folder = strata.path("inside")
    os.makedirs(strata.path("folder"))
    strata.write("job.lua", JOB)
    strata.write("job.conf", JOB)

    def shown_of(expression):
        strata.write("escape.lua", HEAD + "local OUTSIDE = '%s'\n" % outside +
                     "local ok, got = pcall(function() return %s end)\n"
                     "print(ok and got and 'OUT' or 'refused')\n" % expression)
        return strata.run("run", "escape.lua")

    strata.run("train", "job.lua", "--save.dir=../saves")
    for expression in ALLOWED:
        require(shown_of(expression).endswith("OUT\n"), "what may be done: " + expression, "")
    for name, expression in ESCAPES.items():
        shown = shown_of(expression)
        require(shown == "refused\n", "no way out: " + name, shown)
    require(strata.read("job.lua") == JOB, "the file that was there", "")
    print("%d escapes" % len(ESCAPES))


def bombs(strata):
    require(len(BOMBS) >= 20, "20 bombs", len(BOMBS))
    for name, text in BOMBS.items():
        strata.write("bomb.lua", HEAD + text)
        job = strata.start("run", "bomb.lua")
        begin = time.monotonic()
        code, out, errors = job.end()
        require(code in (1, 2) and "strata: " in errors and len(errors) < 4000, "the end of: " + name,
                (code, out, errors[:4000]))
        print("%-24s %5.1f s  %s" % (name, time.monotonic() - begin, errors.strip().split("\n")[0][:100]))
    print("largest %d MiB" % (resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024))


def deaf_scripts(strata):
    strata.write("deaf.lua", "print 'begun'\n" + DEAF)
    job = strata.start("run", "deaf.lua")
    job.wait_for("begun")
    job.process.send_signal(signal.SIGINT)
    time.sleep(0.1)  # two signals at once may arrive as one; what must hold does not depend on it
    while job.process.poll() is None:
        job.process.send_signal(signal.SIGINT)
        time.sleep(0.05)
    require(job.end()[0] in (130, -signal.SIGINT), "the end", job.process.returncode)


if __name__ == "__main__":
    program.main(globals())
