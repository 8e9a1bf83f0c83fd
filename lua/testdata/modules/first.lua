-- Asks for a module that asks for it in turn.
local second = require "modules.second"
return {second = second}
