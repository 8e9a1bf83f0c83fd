#include "lua/tensors/plain_tensors.h"

#include <ATen/ops/empty.h>

#include <cstring>

#include "engine/base/tensors/dtype.h"
#include "engine/comm/specs.h"
#include "lua/tensors/tensors.h"

namespace strata::lua {

std::vector<at::Tensor> ToTensors(const PlainTensors& plain) {
  std::vector<at::Tensor> tensors;
  const char* from = plain.bytes.data();
  for (const TensorSpec& spec : plain.specs) {
    tensors.push_back(at::empty(spec.shape, ToScalarType(spec.dtype)));
    const auto bytes = static_cast<size_t>(spec.bytes());
    if (bytes > 0) std::memcpy(tensors.back().mutable_data_ptr(), from, bytes);
    from += bytes;
  }
  return tensors;
}

PlainTensors ToPlain(const std::vector<at::Tensor>& tensors) {
  PlainTensors plain = {SpecsOf(tensors), {}};
  for (const at::Tensor& tensor : tensors) {
    const at::Tensor flat = tensor.detach().to(at::kCPU).contiguous();
    plain.bytes.append(static_cast<const char*>(flat.const_data_ptr()), flat.nbytes());
  }
  return plain;
}

void PushHalf(lua_State* L, const PlainTensors& half) {
  half.specs.empty() ? lua_pushnil(L) : PushTensors(L, ToTensors(half));
}

}  // namespace strata::lua
