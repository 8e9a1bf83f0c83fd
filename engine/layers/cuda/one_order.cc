// LibTorch's settings under which CUDA's libraries add up in one order, and float32 is float32.
// They belong to the whole process, and are made when libstrata_cuda.so is loaded.
#include <ATen/Context.h>

namespace strata {
namespace {

const bool made = [] {
  at::Context& context = at::globalContext();
  context.setDeterministicCuDNN(true);  // convolutions: it has other algorithms for their gradients
  context.setSDPUseCuDNN(false);        // attention: it has not
  context.setAllowTF32CuDNN(false);     // LibTorch's convolutions would; jobs choose it by name
  return true;
}();

}  // namespace
}  // namespace strata
