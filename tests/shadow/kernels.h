// The kernels of the shadow devices: the CPU's.
#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Generator.h>
#include <c10/core/Allocator.h>
#include <c10/core/GeneratorImpl.h>

namespace strata::shadow {

/// Registers a kernel for every operator that has one for the CPU.
void RegisterKernels(c10::Allocator& allocator);

/// A generator of a shadow device: draws the CPU's numbers.
class ShadowGenerator final : public c10::GeneratorImpl {
 public:
  explicit ShadowGenerator(c10::DeviceIndex device)
      : GeneratorImpl({c10::DeviceType::PrivateUse1, device},
                      c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)) {}
  void set_current_seed(uint64_t seed) override { cpu.set_current_seed(seed); }
  void set_offset(uint64_t) override { TORCH_CHECK(false, "no offsets"); }
  uint64_t get_offset() const override { TORCH_CHECK(false, "no offsets"); }
  uint64_t current_seed() const override { return cpu.current_seed(); }
  uint64_t seed() override { return cpu.seed(); }
  void set_state(const c10::TensorImpl&) override { TORCH_CHECK(false, "no states"); }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    TORCH_CHECK(false, "no states");
  }

  at::Generator cpu = at::make_generator<at::CPUGeneratorImpl>();

 private:
  ShadowGenerator* clone_impl() const override { return new ShadowGenerator(device().index()); }
};

}  // namespace strata::shadow
