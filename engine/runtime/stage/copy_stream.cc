#include "engine/runtime/stage/copy_stream.h"

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "engine/comm/specs.h"

namespace strata {

CopyStream::CopyStream(c10::Device device)
    : stream_(c10::impl::VirtualGuardImpl(device.type())
                  .getStreamFromGlobalPool(device, /*isHighPriority=*/false)),
      memory_(std::make_shared<MessageMemory>(stream_)) {}

std::vector<at::Tensor> CopyStream::Start(const std::vector<at::Tensor>& tensors,
                                          StreamPoint& arrived) {
  const c10::Device device = stream_.device();
  const c10::Stream reader = c10::impl::VirtualGuardImpl(device.type()).getStream(device);
  const c10::StreamGuard guard(stream_);
  std::vector<at::Tensor> copies;
  for (const at::Tensor& tensor : tensors) {
    const at::Tensor pinned = tensor.detach().contiguous().pin_memory();
    copies.push_back(memory_->Take(SpecOf(tensor), reader));
    if (tensor.numel() > 0) copies.back().copy_(pinned, /*non_blocking=*/true);
  }
  arrived = StreamPoint(device);
  return copies;
}

}  // namespace strata
