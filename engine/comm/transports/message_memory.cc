#include "engine/comm/transports/message_memory.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/StreamGuard.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "engine/tensors/dtype.h"

namespace strata {
namespace {

/// Of messages whose sizes change, so much memory that none of them fits is kept.
constexpr size_t kMostFree = 8;

}  // namespace

MessageMemory::~MessageMemory() {
  for (const Slot& slot : free_) {
    if (slot.read) slot.read->block(arrival_);  // whose allocator gets the memory
  }
}

at::Tensor MessageMemory::Take(const TensorSpec& spec, const c10::Stream& reader) {
  const at::ScalarType type = ToScalarType(spec.dtype);
  const int64_t elements =
      std::accumulate(spec.shape.begin(), spec.shape.end(), int64_t{1}, std::multiplies<>());
  Slot slot = FreeSlot(elements * static_cast<int64_t>(c10::elementSize(type)));
  if (slot.read) slot.read->block(arrival_);
  void* const memory = slot.bytes.data_ptr();
  return at::for_blob(memory, spec.shape)
      .deleter([self = shared_from_this(), bytes = std::move(slot.bytes), reader](void*) mutable {
        self->GiveBack(std::move(bytes), reader);
      })
      .options(at::TensorOptions(type).device(arrival_.device()))
      .target_device(arrival_.device())
      .make_tensor();
}

/// The smallest that is large enough, else a new one.
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
  auto read = std::make_unique<c10::Event>(reader.device_type());
  read->record(reader);
  const std::lock_guard lock(mutex_);
  free_.push_back({std::move(bytes), std::move(read)});
}

}  // namespace strata
