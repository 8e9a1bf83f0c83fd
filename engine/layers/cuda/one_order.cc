// Sets LibTorch's global settings so that CUDA's libraries sum in a fixed order and float32 is not
// computed in TF32. They hold for the whole process and are set when libstrata_cuda.so is loaded.
#include <ATen/Context.h>

namespace strata {
namespace {

const bool made = [] {
  at::Context& context = at::globalContext();
  context.setDeterministicCuDNN(true);  // cuDNN has deterministic algorithms for convolutions
  context.setSDPUseCuDNN(false);        // it has none for attention
  context.setAllowTF32CuDNN(false);     // LibTorch's default is true; jobs choose TF32 by name
  return true;
}();

}  // namespace
}  // namespace strata
