-- What luacheck knows of scripts: plain Lua in a sandbox, strata by require. `strata types` writes the same.
std = "luajit"
ignore = {"212"}  -- arguments that a function must take, whether it needs them or not
max_line_length = 120
