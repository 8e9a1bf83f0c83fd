-- require, strata.read and strata.load: they read files below the script's folder and no others.
local strata = require "strata"
local expect = require "expect"

-- A module runs once, gets its name as an argument, and may return any value.
local counter = require "modules.counter"
expect.equal(counter, {name = "modules.counter", loads = 1})
expect.equal(require "modules.counter" == counter, true)
expect.equal(loads, 1)
expect.equal(require "modules.silent", true)
expect.equal(silent, "ran")
expect.equal(require "modules.shebang", 7)
expect.equal(require "strata" == strata, true)
expect.equal(require "expect" == expect, true)

-- Of two modules that require each other, the inner one gets true; loading does not go on for ever.
expect.equal(require "modules.first", {second = {first = true}})

-- A module that fails reports its place, each time that it is required.
for _ = 1, 2 do
  for name, place in pairs{broken = "2:", failing = "2: cannot be loaded"} do
    local ok, message = pcall(require, "modules." .. name)
    expect.equal(ok, false)
    expect.equal(message:find("modules/" .. name .. ".lua:" .. place, 1, true) ~= nil, true)
  end
end

expect.errors{
  {function() require "modules.failing" end, "modules/failing.lua:2: cannot be loaded"},
  {function() require "modules.bytecode" end, "modules/bytecode.lua", "this is bytecode"},
  {function() require "modules.missing" end, "files.lua:", "there is no file", "missing.lua"},
  {function() require "modules" end, "there is no file"},
  {function() require "missing" end, "there is no file", "missing.lua (the module)"},
  {function() require "modules.text" end, "there is no file"},
  {function() require "../expect" end, "by a name such as"},
  {function() require "modules/counter" end, "by a name such as", '"modules/counter"'},
  {function() require "/etc/passwd" end, "by a name such as"},
  {function() require "..expect" end, "by a name such as"},
  {function() require "expect." end, "by a name such as"},
  {function() require "" end, "by a name such as"},
  {function() require "a b" end, "by a name such as"},
  {function() require "a\0b" end, "by a name such as"},
  {function() require(("a."):rep(5000) .. "a") end, "files.lua:"},
  {function() require(7) end, "the name of a file", "the number 7"},
  {function() require() end, "the name of a file", "nothing"},
  {function() require {} end, "the name of a file", "a list of 0"},
}

-- strata.read returns a file's bytes.
expect.equal(strata.read "modules/text.txt", "no job")
expect.equal(strata.read "./modules/inner/name.txt", "inner")
expect.equal(strata.read("modules/bytecode.lua"):byte(), 27)
expect.equal(strata.read("files.lua"):find("strata.read gives", 1, true) ~= nil, true)
expect.errors{
  {function() strata.read "../BUILD" end, "files.lua:", "below the script's folder", '"../BUILD"'},
  {function() strata.read "modules/../files.lua" end, "below the script's folder"},
  {function() strata.read "/etc/passwd" end, "below the script's folder", '"/etc/passwd"'},
  {function() strata.read "" end, "below the script's folder"},
  {function() strata.read "files.lua\0.txt" end, "below the script's folder"},
  {function() strata.read "modules" end, "is not a file"},
  {function() strata.read "." end, "is not a file"},
  {function() strata.read "modules/missing.txt" end, "there is no file", "modules/missing.txt"},
  {function() strata.read "files.lua/x" end, "files.lua:"},
  {function() strata.read(("x"):rep(5000)) end, "files.lua:"},
  {function() strata.read() end, "a file's path", "nothing"},
  {function() strata.read(7) end, "a file's path", "the number 7"},
}

-- strata.load evaluates the job of another script, in that script's folder and with its defaults.
local inner = strata.load "modules/inner/job.lua"
expect.equal(inner.name, "inner")
expect.equal(#inner.layers, 2)
expect.equal(inner.layers[1].parameters, 42)
expect.equal(inner.layers[1].where:find("modules/inner/job.lua:8", 1, true) ~= nil, true)
expect.equal(strata.load "modules/inner/job.lua" ~= inner, true)
expect.equal(inner:plan{pipe = 2, micro_batches = 1, micro_batch_size = 1}.bounds, {0, 1, 2})

-- A table sets options of the script and keys of its job.
local deep = strata.load("modules/inner/job.lua", {depth = 5, pipe = 3, micro_batches = 2, micro_batch_size = 1})
expect.equal(#deep.layers, 5)
expect.equal(#deep:plan{}.stages, 3)
expect.equal(#deep:plan{pipe = 2, schedule = "1f1b"}.stages, 2)
expect.equal(#strata.load("modules/inner/job.lua", {}).layers, 2)
expect.errors{
  {function() strata.load("modules/inner/job.lua", {dept = 5}) end, "files.lua:", "modules/inner/job.lua has no option",
    'did you mean "depth"?'},
  {function() strata.load("modules/inner/job.lua", {stepz = 5}) end, 'did you mean "steps"?'},
  {function() strata.load("modules/inner/job.lua", {depth = "5"}) end, "strata.load: depth expects a number", '"5"'},
  {function() strata.load("modules/inner/job.lua", {pipe = "two"}) end, "pipe expects"},
  {function() strata.load("modules/inner/job.lua", {5}) end, "the number 5 without a name"},
  {function() strata.load("modules/inner/job.lua", 5) end, "a table of options", "the number 5"},
}
-- The options of the loading script are not affected.
expect.equal(strata.options{depth = 1}.depth, 1)
expect.errors{
  {function() strata.load "modules/counter.lua" end, "must return a job", "a table with the key loads"},
  {function() strata.load "modules/silent.lua" end, "must return a job", "it returned nothing"},
  {function() strata.load "modules/shebang.lua" end, "must return a job", "the number 7"},
  {function() strata.load "modules/broken.lua" end, "modules/broken.lua:2:"},
  {function() strata.load "modules/failing.lua" end, "modules/failing.lua:2: cannot be loaded"},
  {function() strata.load "modules/bytecode.lua" end, "this is bytecode"},
  {function() strata.load "modules/missing.lua" end, "files.lua:", "there is no file"},
  {function() strata.load "modules" end, "is not a file"},
  {function() strata.load() end, "the path of a script", "nothing"},
  {function() strata.load {} end, "the path of a script", "a list of 0"},
}

-- After all this, files are still found relative to this script.
expect.equal(strata.read "modules/text.txt", "no job")
expect.error(function() require "size" end, "there is no file")
expect.equal(require "modules.inner.size", 6)
