"""Tests that run the program as its users do."""

_ENGINE = ["//:engine"]
_STRATA = [
    "//launcher:strata",
    "//models",
    "@digits//:data/digits.csv",
]

def program_test(name, script, args = [], data = [], tags = [], engine = True, **kwargs):
    """One test that runs the package's SCRIPT with the program's place in its environment; without `engine`
    there is no LibTorch. What else is given, the test takes."""
    native.sh_test(
        name = name,
        size = "large",
        srcs = ["//tests:run_strata.sh"],
        args = [native.package_name() + "/" + script] + args,
        data = ["//tests:program.py", script] + data + _STRATA + (_ENGINE if engine else []),
        tags = tags,
        **kwargs
    )

def program_tests(script, functions, name, data = [], engine = True, **kwargs):
    """One test for each of the script's functions, called as `name` says: "{}_hosts_test"; of
    "kills=100" the function kills(100)."""
    for function in functions:
        called = name.format(function.split("=")[0])
        program_test(called, script, [function], data, engine = engine, **kwargs)

def program_campaigns(script, functions, name, **kwargs):
    """Long tests, which run when they are asked for."""
    program_tests(script, functions, name, tags = ["manual"], **kwargs)
