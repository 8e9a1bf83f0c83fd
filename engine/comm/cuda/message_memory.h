// MessageMemory: a pool of accelerator memory for received messages. A message arrives on one
// stream (the communicator's) and is read on another (the compute stream).
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <memory>
#include <mutex>
#include <vector>

#include "engine/base/fields/tensor_spec.h"

namespace strata {

/// A piece of memory is reused once its reader has released it. The arrival's stream waits for the
/// reader's work by an event; the host waits for nothing. So the pool only grows to the number of
/// messages that were alive at once, however far the host is ahead of the device. (With
/// Tensor::record_stream() the allocator would have to wait until the device has finished the
/// reading, and would allocate new memory meanwhile.)
class MessageMemory : public std::enable_shared_from_this<MessageMemory> {
 public:
  explicit MessageMemory(c10::Stream arrival) : arrival_(arrival) {}
  ~MessageMemory();
  /// Returns a tensor to be written on the arrival's stream and then read on `reader`. By the time
  /// its last owner releases it, on any thread, all work that reads it must be queued on `reader`.
  at::Tensor Take(const TensorSpec& spec, const c10::Stream& reader);
  /// Does what Tensor::record_stream() does, for a tensor of a MessageMemory or of the allocator:
  /// `stream` uses it too, in work that is queued before the last owner releases the tensor. A
  /// message that is passed on to another rank is such a case. Its memory does not return to this
  /// pool but to the allocator, which reuses it once `stream` is done. With the pool, a receive
  /// would wait for that send, and perhaps for ever: the other end of the send may be queued behind
  /// the other end of this receive.
  static void RecordStream(const at::Tensor& tensor, const c10::Stream& stream);

 private:
  struct Slot {
    at::Tensor bytes;
    std::unique_ptr<c10::Event> read;  // null: nobody has read this memory yet
  };
  Slot FreeSlot(int64_t bytes);
  void GiveBack(at::Tensor bytes, const c10::Stream& reader);

  const c10::Stream arrival_;
  std::mutex mutex_;
  std::vector<Slot> free_;
};

}  // namespace strata
