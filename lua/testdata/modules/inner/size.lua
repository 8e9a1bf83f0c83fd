return 6
