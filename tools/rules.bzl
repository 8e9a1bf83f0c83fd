"""Strata's own C++ targets: cc_library, cc_test and cc_binary, with warnings as errors.

They take the attributes of the rules that they wrap.
"""

_COPTS = [
    # For targets that depend on LibTorch this is the precompiled header, for others an empty file.
    "-include",
    "precompiled_torch.h",
    "-idirafter",
    "third_party/torch/without",
    "-Winvalid-pch",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-Wnon-virtual-dtor",
    "-Woverloaded-virtual",
    # GCC 12 warns of overlaps and overflows in std::string and in LibTorch's reference counts that do not exist (its
    # bugs 105651 and 105329).
    "-Wno-restrict",
    "-Wno-array-bounds",
    "-Wno-stringop-overflow",
]

_PRECOMPILED = ["//third_party/torch:without"]

# The code that each executable contains once, for itself and for the shared libraries that it loads.
_EXECUTABLE_DEPS = ["//engine/base:log"]

def strata_library(name, copts = [], deps = [], linkstatic = True, **kwargs):
    """A library that is linked into what uses it; no shared object of its own."""
    native.cc_library(
        name = name,
        copts = _COPTS + copts,
        linkstatic = linkstatic,
        deps = deps + _PRECOMPILED,
        **kwargs
    )

def strata_folders(name, folders, srcs = [], hdrs = [], exclude = [], **kwargs):
    """A library of all that lies in these folders ("" or "folder/") but tests and benchmarks, and of srcs and hdrs."""
    apart = ["**/*_test.cc", "**/*_benchmark.cc"] + exclude
    strata_library(
        name = name,
        srcs = srcs + native.glob([folder + "*.cc" for folder in folders], exclude = apart),
        hdrs = hdrs + native.glob([folder + "*.h" for folder in folders], exclude = apart),
        **kwargs
    )

def sources():
    """All files of a package, for the tests that read them."""
    native.filegroup(
        name = "sources",
        srcs = native.glob(["**"]),
        visibility = ["//tests/house:__pkg__"],
    )

# A test's own code runs only once, and GCC compiles it in half the time with -O1. But with -O1 it warns of reads beyond
# the end of a string that do not exist.
_TEST_COPTS = _COPTS + ["-O1", "-Wno-stringop-overread"]

def strata_test(name, copts = [], deps = [], size = "small", linkstatic = True, **kwargs):
    """A GoogleTest; its main() is added, and its end where it hangs. A test that needs a GPU carries the tag "gpu"."""
    native.cc_test(
        name = name,
        size = size,
        copts = _TEST_COPTS + copts,
        linkstatic = linkstatic,
        deps = _with(deps, ["@gtest//:main", "//tests/deadline"] + _EXECUTABLE_DEPS + _PRECOMPILED),
        **kwargs
    )

def strata_tests(srcs, cases = 300, cases_of = {}, env = {}, **kwargs):
    """A GoogleTest for each file, named as it is. `cases` of each property are tried, or what cases_of has by name."""
    for src in srcs:
        name = src.split("/")[-1][:-len(".cc")]
        strata_test(
            name = name,
            srcs = [src],
            env = dict(env, RC_PARAMS = "seed=1 max_success=%d" % cases_of.get(name, cases)),
            **kwargs
        )

def strata_binary(name, copts = [], deps = [], linkshared = False, linkstatic = True, **kwargs):
    """An executable, or with linkshared a shared library that an executable loads with dlopen."""
    native.cc_binary(
        name = name,
        copts = _COPTS + copts,
        linkshared = linkshared,
        linkstatic = linkstatic,
        deps = _with(deps, _PRECOMPILED + ([] if linkshared else _EXECUTABLE_DEPS)),
        **kwargs
    )

def _with(deps, added):
    return deps + [dep for dep in added if dep not in deps]
