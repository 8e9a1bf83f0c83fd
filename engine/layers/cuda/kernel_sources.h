// The sources of our kernels (kernels.inc), which are part of the program.
#pragma once

#include <span>
#include <string>

#include "engine/layers/cuda/kernel_call.h"

namespace strata {

struct KernelEntry {
  const char* name;
  const char* file;  ///< "norm.cu"
};

std::span<const KernelEntry> Kernels();
/// The names of the files, each once.
std::span<const std::string> KernelFiles();
/// The source of all kernels of a file, for one type of element.
std::string KernelSource(const std::string& file, KernelElement element);

inline constexpr KernelElement kKernelElements[] = {KernelElement::kFp32, KernelElement::kBf16,
                                                    KernelElement::kFp16};

}  // namespace strata
