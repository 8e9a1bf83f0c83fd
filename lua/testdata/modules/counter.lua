-- Counts how often it is loaded: a module runs once for a state.
loads = (loads or 0) + 1
return {name = ..., loads = loads}
