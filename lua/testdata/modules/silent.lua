-- Returns nothing, so require returns true.
silent = "ran"
