// The scratch memory of an operator in a dry run (dry_run.h): what the operator's kernel allocates
// beside its results and frees before it returns. A dry run calls no kernel, so without this the
// account would miss it. Includes LibTorch.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <string>

namespace strata {

/// Returns the bytes that the kernel needs at its peak beside `results`, which have their shapes
/// and no values.
using KernelScratch = int64_t (*)(c10::ArrayRef<c10::IValue> arguments,
                                  c10::ArrayRef<c10::IValue> results);

/// Sets the scratch memory of an operator, as "aten::convolution". Call it before the first dry
/// run.
void SetKernelScratch(const std::string& op, KernelScratch scratch);

}  // namespace strata
