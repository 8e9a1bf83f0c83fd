return {first = require "modules.first"}
