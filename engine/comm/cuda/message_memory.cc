#include "engine/comm/cuda/message_memory.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/StreamGuard.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <utility>

#include "engine/base/tensors/dtype.h"

namespace strata {
namespace {

/// The largest number of free pieces of memory. When the sizes of messages change, old pieces fit
/// no new message; beyond this number the oldest goes back to the allocator.
constexpr size_t kMostFree = 8;

/// The memory of all messages that are alive, by address. One object for all MessageMemory objects
/// of the process.
class Alive {
 public:
  static Alive& Get() {
    static auto* const alive =
        new Alive;  // never deleted, since tensors may outlive static objects
    return *alive;
  }
  void Begin(const at::Tensor& bytes) {
    const std::lock_guard lock(mutex_);
    messages_[bytes.data_ptr()] = {bytes, false};
  }
  /// Notes that `stream` uses the message at `memory`. Does nothing for memory that is no
  /// message's.
  void Record(const void* memory, const c10::Stream& stream) {
    const std::lock_guard lock(mutex_);
    const auto found = messages_.find(memory);
    if (found == messages_.end()) return;
    found->second.bytes.record_stream(stream);
    found->second.is_passed_on = true;
  }
  /// Removes a message. Returns true if it was passed on (Record()).
  bool End(const at::Tensor& bytes) {
    const std::lock_guard lock(mutex_);
    return messages_.extract(bytes.data_ptr()).mapped().is_passed_on;
  }

 private:
  struct Message {
    at::Tensor bytes;
    bool is_passed_on;
  };
  std::mutex mutex_;
  std::map<const void*, Message> messages_;
};

}  // namespace

void MessageMemory::RecordStream(const at::Tensor& tensor, const c10::Stream& stream) {
  tensor.record_stream(stream);
  Alive::Get().Record(tensor.storage().data(), stream);
}

MessageMemory::~MessageMemory() {
  for (const Slot& slot : free_) {
    if (slot.read)
      slot.read->block(arrival_);  // the allocator gives the memory to later work of arrival_
  }
}

at::Tensor MessageMemory::Take(const TensorSpec& spec, const c10::Stream& reader) {
  const at::ScalarType type = ToScalarType(spec.dtype);
  const int64_t elements =
      std::accumulate(spec.shape.begin(), spec.shape.end(), int64_t{1}, std::multiplies<>());
  Slot slot = FreeSlot(elements * static_cast<int64_t>(c10::elementSize(type)));
  if (slot.read) slot.read->block(arrival_);
  void* const memory = slot.bytes.data_ptr();
  Alive::Get().Begin(slot.bytes);
  return at::for_blob(memory, spec.shape)
      .deleter([self = shared_from_this(), bytes = std::move(slot.bytes), reader](void*) mutable {
        self->GiveBack(std::move(bytes), reader);
      })
      .options(at::TensorOptions(type).device(arrival_.device()))
      .target_device(arrival_.device())
      .make_tensor();
}

/// Takes the smallest free slot of at least `bytes` bytes, or allocates a new one.
MessageMemory::Slot MessageMemory::FreeSlot(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  auto best = free_.end();
  for (auto slot = free_.begin(); slot != free_.end(); ++slot) {
    const bool fits = slot->bytes.numel() >= bytes;
    if (fits && (best == free_.end() || slot->bytes.numel() < best->bytes.numel())) best = slot;
  }
  if (best != free_.end()) {
    Slot slot = std::move(*best);
    free_.erase(best);
    return slot;
  }
  if (free_.size() >= kMostFree) {
    free_.front().read->block(arrival_);
    free_.erase(free_.begin());
  }
  const c10::StreamGuard guard(arrival_);
  return {at::empty({bytes}, at::TensorOptions(at::kByte).device(arrival_.device())), nullptr};
}

void MessageMemory::GiveBack(at::Tensor bytes, const c10::Stream& reader) {
  if (Alive::Get().End(bytes)) return bytes.record_stream(reader);
  auto read = std::make_unique<c10::Event>(reader.device_type());
  read->record(reader);
  const std::lock_guard lock(mutex_);
  free_.push_back({std::move(bytes), std::move(read)});
}

}  // namespace strata
