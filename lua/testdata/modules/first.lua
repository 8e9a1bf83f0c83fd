-- Requires a module that requires this one in turn.
local second = require "modules.second"
return {second = second}
