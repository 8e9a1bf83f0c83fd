// KernelLauncher: the one way in which layers and optimizers start a kernel of ours (*.cu). There
// is one that compiles the kernels for the GPU (gpu_launcher.h), and for tests one that runs them
// on the CPU (on_cpu.h). Nothing here needs LibTorch or CUDA.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace strata {

/// The type that a kernel's file calls Element.
enum class KernelElement { kFp32, kBf16, kFp16 };

/// An argument of a kernel: memory of the device, or a number. The type must be the one that the
/// kernel declares: a GPU would not notice another one, on_cpu.h does.
struct KernelArgument {
  enum class Type { kMemory, kInt, kLong, kFloat };
  KernelArgument(int value) : type(Type::kInt), number{.as_int = value} {}
  KernelArgument(int64_t value) : type(Type::kLong), number{.as_long = value} {}
  KernelArgument(float value) : type(Type::kFloat), number{.as_float = value} {}
  /// `bytes`: how many there are from `memory` on. Null: the kernel does without.
  KernelArgument(void* memory, size_t bytes)
      : type(Type::kMemory), number{.as_memory = memory}, bytes(bytes) {}

  Type type;
  union Number {
    int as_int;
    long long as_long;
    float as_float;
    void* as_memory;
  } number;
  size_t bytes = 0;
};

/// One launch. A block has one dim of threads, a multiple of 32.
struct KernelCall {
  const char* name;  ///< in the table of kernel_sources.h
  KernelElement element;
  unsigned grid_x = 1, grid_y = 1;
  unsigned block = 1;
  std::vector<KernelArgument> arguments;
};

class KernelLauncher {
 public:
  virtual ~KernelLauncher() = default;
  /// Puts the call behind what the stream has to do. `device`: its index; `stream`: CUDA's handle.
  virtual void Launch(const KernelCall& call, int device, void* stream) = 0;
};

}  // namespace strata
