# Arrow's C++ libraries and headers %{arrow}
#
# As with LibTorch: system headers, and libraries by their absolute path.
package(default_visibility = ["//visibility:public"])

exports_files(["folder.txt"])

cc_library(
    name = "arrow",
    hdrs = glob(["include/**"]),
    includes = ["include"],
    linkopts = [
        "-L'%{arrow}'",
        "-Wl,--enable-new-dtags",
        "-Wl,-rpath,'%{arrow}'",
        "-l:libparquet.so.2600",
        "-l:libarrow.so.2600",
    ],
)
