# LibTorch %{torch_lib}
#
# All headers are system headers: no warnings from them. Libraries are found by their absolute path,
# since the wheels' own $ORIGIN paths do not survive Bazel's symbolic links.
package(default_visibility = ["//visibility:public"])

cc_library(
    name = "torch_headers",
    hdrs = glob(
        ["torch/**"],
        exclude = [
            "torch/google/**",
            "torch/pybind11/**",
        ],
    ),
    defines = ["AT_PER_OPERATOR_HEADERS"],  # Including all operators takes seconds.
    includes = [
        "torch",
        "torch/torch/csrc/api/include",
    ],
)

# ATen, c10 and the C++ part of autograd. Without CUDA.
cc_library(
    name = "torch_cpu",
    linkopts = [
        "-L'%{torch_lib}'",
        "-Wl,--enable-new-dtags",
        "-Wl,-rpath,'%{torch_lib}'",
        "-ltorch_cpu",
        "-lc10",
    ],
    deps = [
        ":torch_headers",
        "@strata//third_party/torch:precompiled",
    ],
)

# torch.distributed's process groups over Gloo. The wheels lack Gloo's headers: those of Debian's
# libgloo-dev fit, its library is not used.
cc_library(
    name = "c10d",
    defines = ["USE_C10D_GLOO"],
    deps = [":torch_cpu"],
)

# NVTX, which names ranges for profilers: headers only. Empty where CUDA's headers are missing.
cc_library(
    name = "nvtx",
    hdrs = glob(["nvidia/*/nvtx3/**"]),
    includes = %{cuda_includes},
)

# Where CUDA's compiler library is, which a test loads.
cc_library(
    name = "nvrtc",
    linkopts = %{cuda_linkopts},
    target_compatible_with = %{cuda_compatible_with},
)

# CUDA, and process groups over NCCL.
cc_library(
    name = "torch_cuda",
    hdrs = glob(["nvidia/**"]),
    defines = ["USE_C10D_NCCL"],
    includes = %{cuda_includes},
    linkopts = %{cuda_linkopts} + [
        "-ltorch_cuda",
        "-lc10_cuda",
        "-l:libcudart.so.13",
        "-l:libnccl.so.2",
    ],
    target_compatible_with = %{cuda_compatible_with},
    deps = [":c10d"],
)
