-- Returns nothing: require gives true.
silent = "ran"
