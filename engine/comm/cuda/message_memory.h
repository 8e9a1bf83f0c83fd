// MessageMemory: memory of an accelerator for messages that arrive on one stream and are read on
// another.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <memory>
#include <mutex>
#include <vector>

#include "engine/base/fields/tensor_spec.h"

namespace strata {

/// Memory is given out again once who read it has let go of it: the stream on which messages arrive
/// waits for the reader's work by an event, the host for nothing. So there is as much of it as
/// messages were alive at once, however far the host is ahead of the device. (With
/// Tensor::record_stream() the allocator would wait until the device has come so far, and take new
/// memory meanwhile.)
class MessageMemory : public std::enable_shared_from_this<MessageMemory> {
 public:
  explicit MessageMemory(c10::Stream arrival) : arrival_(arrival) {}
  ~MessageMemory();
  /// A tensor to be written to on the arrival's stream and then read on `reader`. When its last
  /// owner lets go of it, from any thread, all that reads it has been put into `reader`.
  at::Tensor Take(const TensorSpec& spec, const c10::Stream& reader);
  /// Tensor::record_stream() for a tensor of this memory or of the allocator's: it is used on
  /// `stream` too, by what was put there before its last owner lets go. A message that is passed on
  /// is, and its memory goes back to the allocator, which gives it out once that use has ended. A
  /// receive that waited for a send could wait for ever: the send's other end may be queued behind
  /// this receive's.
  static void RecordStream(const at::Tensor& tensor, const c10::Stream& stream);

 private:
  struct Slot {
    at::Tensor bytes;
    std::unique_ptr<c10::Event> read;  // null: nobody has read it yet
  };
  Slot FreeSlot(int64_t bytes);
  void GiveBack(at::Tensor bytes, const c10::Stream& reader);

  const c10::Stream arrival_;
  std::mutex mutex_;
  std::vector<Slot> free_;
};

}  // namespace strata
