// CopyStream: copies data from the host to an accelerator while the accelerator computes.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <memory>
#include <vector>

#include "engine/comm/cuda/message_memory.h"
#include "engine/comm/stream_point.h"

namespace strata {

/// The copies run on a stream of their own and through pinned memory, so that neither the host nor
/// the current stream waits for them. Their destination is memory that is reused.
class CopyStream {
 public:
  explicit CopyStream(c10::Device device);
  /// Starts to copy tensors of the host. Sets `arrived`, at which the copies are complete. They may
  /// be used on the stream that is the calling thread's current one now.
  std::vector<at::Tensor> Start(const std::vector<at::Tensor>& tensors, StreamPoint& arrived);

 private:
  const c10::Stream stream_;
  const std::shared_ptr<MessageMemory> memory_;
};

}  // namespace strata
