// LibTorch's settings under which CUDA's libraries add up in one order. They belong to the whole
// process, and are made when libstrata_cuda.so is loaded.
#include <ATen/Context.h>

namespace strata {
namespace {

const bool made = [] {
  at::Context& context = at::globalContext();
  context.setDeterministicCuDNN(true);  // convolutions: it has other algorithms for their gradients
  context.setSDPUseCuDNN(false);        // attention: it has not
  return true;
}();

}  // namespace
}  // namespace strata
