-- Counts how often it is loaded: in one state a module runs once.
loads = (loads or 0) + 1
return {name = ..., loads = loads}
