"""The command `strata` of the wheel: the program in bin/, with the LibTorch of the installed PyTorch."""

import importlib.util
import os
import sys


def main():
    folder = os.path.dirname(os.path.abspath(__file__))
    program = os.path.join(folder, "bin", "strata")
    environment = dict(os.environ)
    # The program itself looks for PyTorch beside this package. It may be elsewhere, as with pip install --user.
    beside = os.path.join(os.path.dirname(folder), "torch", "lib", "libtorch_cpu.so")
    if "LIBTORCH" not in environment and not os.path.exists(beside):
        torch = importlib.util.find_spec("torch")  # does not run it
        if torch and torch.submodule_search_locations:
            environment["LIBTORCH"] = list(torch.submodule_search_locations)[0]
    os.execve(program, [program, *sys.argv[1:]], environment)


if __name__ == "__main__":
    main()
