// CopyStream: data on its way from the host's memory to an accelerator, beside what the
// accelerator computes.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <memory>
#include <vector>

#include "engine/comm/cuda/message_memory.h"
#include "engine/comm/stream_point.h"

namespace strata {

/// Copies run on a stream of their own, through pinned memory, so that neither the host nor the
/// current stream waits for them. They arrive in memory that is used again.
class CopyStream {
 public:
  explicit CopyStream(c10::Device device);
  /// Begins to copy tensors of the host. They are there at `arrived`, for the stream that is the
  /// thread's current one now.
  std::vector<at::Tensor> Start(const std::vector<at::Tensor>& tensors, StreamPoint& arrived);

 private:
  const c10::Stream stream_;
  const std::shared_ptr<MessageMemory> memory_;
};

}  // namespace strata
