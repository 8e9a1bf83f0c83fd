#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "engine/layers/cuda/adam_kernel.h"

#include <cmath>

#include "engine/layers/cuda/launch.h"

namespace strata {

bool AdamByKernel(const AdamCall& call) {
  KernelLauncher* const launcher = KernelsFor(call.values);
  if (!launcher) return false;
  for (const at::Tensor& t : {call.values, call.gradients, call.averages, call.squares}) {
    if (t.scalar_type() != at::kFloat || !AreForKernels({t})) return false;
  }
  if (call.copy.defined() && !AreForKernels({call.copy})) return false;
  const auto element = KernelElementOf(call.copy.defined() ? call.copy.scalar_type() : at::kFloat);
  if (!element) return false;
  constexpr int64_t kThreads = 256, kOfBlock = 8 * kThreads;
  const auto step = static_cast<double>(call.step);
  const auto number = [](double value) { return static_cast<float>(value); };
  const int64_t count = call.values.numel();
  LaunchOn(call.values, *launcher,
           {.name = "adamw",
            .element = *element,
            .grid_x = static_cast<unsigned>((count + kOfBlock - 1) / kOfBlock),
            .block = kThreads,
            .arguments = {Memory(call.values), Memory(call.gradients), Memory(call.averages),
                          Memory(call.squares), Memory(call.copy), count, number(call.divisor),
                          number(call.lr), number(call.beta1), number(call.beta2),
                          number(1 - call.beta2), number(call.decay), number(call.eps),
                          number(call.lr / (1 - std::pow(call.beta1, step))),
                          number(std::sqrt(1 - std::pow(call.beta2, step))),
                          static_cast<int>(call.decoupled), static_cast<int>(call.maximize)}});
  return true;
}

}  // namespace strata
