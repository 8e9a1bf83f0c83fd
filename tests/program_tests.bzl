"""Tests that run the program as its users do."""

_ENGINE = ["//:engine"]
_STRATA = [
    "//launcher:strata",
    "//models",
    "@digits//:data/digits.csv",
]

def program_test(name, script, args = [], data = [], tags = [], engine = True):
    """One test that runs tests/SCRIPT with the program's place in its environment; without `engine`
    there is no LibTorch."""
    native.sh_test(
        name = name,
        size = "large",
        srcs = ["run_strata.sh"],
        args = ["tests/" + script] + args,
        data = ["program.py", script] + data + _STRATA + (_ENGINE if engine else []),
        tags = tags,
    )

def program_tests(script, functions, name, data = [], engine = True):
    """One test for each of the script's functions, called as `name` says: "{}_hosts_test"."""
    for function in functions:
        program_test(name.format(function), script, [function], data, engine = engine)

def program_campaigns(script, functions, name):
    """Long tests, which run when they are asked for: of "kills=100" the function kills(100)."""
    for function in functions:
        program_test(name.format(function.split("=")[0]), script, [function], tags = ["manual"])
