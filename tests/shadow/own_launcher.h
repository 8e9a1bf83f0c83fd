// Runs our kernels for GPUs (engine/layers/cuda/*.cu) on the shadow devices.
#pragma once

#include <vector>

#include "engine/layers/cuda/launch.h"
#include "engine/layers/cuda/on_cpu.h"
#include "tests/shadow/device.h"
#include "tests/shadow/machine.h"

namespace strata::shadow {

/// While it lives, layers and optimizers run them: each as a launch of the shadow device.
class Launcher : public KernelLauncher {
 public:
  Launcher() { SetKernelLauncher(kType, this); }
  ~Launcher() override { SetKernelLauncher(kType, nullptr); }
  void Launch(const KernelCall& call, int, void* stream) override {
    const auto& kernels = *on_cpu::strata_kernels_on_cpu();
    const on_cpu::Kernel& kernel = on_cpu::FindKernel(kernels, call.name, call.element);
    std::vector<Use> uses;
    for (size_t i = 0; i < call.arguments.size(); ++i) {
      const KernelArgument& argument = call.arguments[i];
      const bool is_memory = argument.type == KernelArgument::Type::kMemory;
      if (!is_memory || argument.number.as_memory == nullptr) continue;
      uses.push_back({static_cast<const std::byte*>(argument.number.as_memory), argument.bytes,
                      kernel.writes[i], "memory of a kernel of ours"});
    }
    const auto number = static_cast<int>(reinterpret_cast<intptr_t>(stream));
    Machine::Get().Launch(number, call.name, uses);
    kernel.run(call, on_cpu::Order::kUp);
  }
};

}  // namespace strata::shadow
