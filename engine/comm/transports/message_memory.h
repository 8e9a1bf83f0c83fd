// MessageMemory: memory of an accelerator for messages that arrive on one stream and are read on
// another.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <memory>
#include <mutex>
#include <vector>

#include "engine/spec/fields/tensor_spec.h"

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
  /// owner lets go of it, from any thread, all that reads it has been put into `reader`, or into
  /// streams that RecordStream() was told of.
  at::Tensor Take(const TensorSpec& spec, const c10::Stream& reader);
  /// The tensor, of this memory or of the allocator's, is also used on `stream`, by what was put
  /// there before its last owner lets go: a message that is passed on. Tensor::record_stream()
  /// knows the allocator's memory only.
  static void RecordStream(const at::Tensor& tensor, const c10::Stream& stream);

 private:
  struct Slot {
    at::Tensor bytes;
    std::vector<c10::Event> read;  // on each stream that has read it
  };
  void AwaitReaders(const Slot& slot) const;
  Slot FreeSlot(int64_t bytes);
  void GiveBack(at::Tensor bytes);

  const c10::Stream arrival_;
  std::mutex mutex_;
  std::vector<Slot> free_;
};

}  // namespace strata
