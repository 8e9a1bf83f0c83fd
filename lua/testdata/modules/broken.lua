-- No Lua.
local x = = 1
