#include "engine/layers/cuda/kernel_sources.h"

#include <algorithm>
#include <vector>

#include "engine/base/check.h"
#include "engine/base/text.h"

namespace strata {
namespace {

struct SourceFile {
  const char* name;
  const char* text;
};

constexpr SourceFile kFiles[] = {
#include "engine/layers/cuda/embedded_kernels.inc"
};

constexpr KernelEntry kKernels[] = {
#define STRATA_KERNEL(name, file) {#name, file},
#include "engine/layers/cuda/kernels.inc"
#undef STRATA_KERNEL
};

const char* TextOf(const std::string& file) {
  const auto found = std::ranges::find(kFiles, file, &SourceFile::name);
  STRATA_CHECK(found != std::end(kFiles)) << "no file of kernels " << file;
  return found->text;
}

const char* TypeOf(KernelElement element) {
  switch (element) {
    case KernelElement::kFp32:
      return "float";
    case KernelElement::kBf16:
      return "Bf16";
    case KernelElement::kFp16:
      return "Fp16";
  }
  return "";
}

}  // namespace

std::span<const KernelEntry> Kernels() { return kKernels; }

std::span<const std::string> KernelFiles() {
  static const std::vector<std::string> files = [] {
    std::vector<std::string> all;
    for (const KernelEntry& kernel : kKernels) {
      if (std::ranges::find(all, kernel.file) == all.end()) all.emplace_back(kernel.file);
    }
    return all;
  }();
  return files;
}

std::string KernelSource(const std::string& file, KernelElement element) {
  return Str(TextOf("common.cuh"), "\nusing Element = ", TypeOf(element), ";\n", TextOf(file));
}

}  // namespace strata
