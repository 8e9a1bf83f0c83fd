-- Fails while it loads.
local function deep() error("cannot be loaded") end
deep()
