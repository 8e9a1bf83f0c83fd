LJ
