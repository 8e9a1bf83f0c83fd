#include "engine/comm/transports/message_memory.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/StreamGuard.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <utility>

#include "engine/tensors/dtype.h"

namespace strata {
namespace {

/// Of messages whose sizes change, so much memory that none of them fits is kept.
constexpr size_t kMostFree = 8;

/// The streams that read what was taken, by where it lies.
class Readers {
 public:
  static Readers& Get() {
    static auto* const readers = new Readers;  // tensors may outlive statics
    return *readers;
  }
  void Begin(const void* memory, const c10::Stream& stream) {
    const std::lock_guard lock(mutex_);
    streams_[memory] = {stream};
  }
  /// Does nothing for memory that is not here.
  void Add(const void* memory, const c10::Stream& stream) {
    const std::lock_guard lock(mutex_);
    const auto found = streams_.find(memory);
    if (found == streams_.end()) return;
    std::vector<c10::Stream>& streams = found->second;
    if (std::ranges::find(streams, stream) == streams.end()) streams.push_back(stream);
  }
  std::vector<c10::Stream> End(const void* memory) {
    const std::lock_guard lock(mutex_);
    return std::move(streams_.extract(memory).mapped());
  }

 private:
  std::mutex mutex_;
  std::map<const void*, std::vector<c10::Stream>> streams_;
};

}  // namespace

MessageMemory::~MessageMemory() {
  for (const Slot& slot : free_) AwaitReaders(slot);  // the arrival's allocator gets the memory
}

void MessageMemory::AwaitReaders(const Slot& slot) const {
  for (const c10::Event& read : slot.read) read.block(arrival_);
}

void MessageMemory::RecordStream(const at::Tensor& tensor, const c10::Stream& stream) {
  tensor.record_stream(stream);
  Readers::Get().Add(tensor.storage().data(), stream);
}

at::Tensor MessageMemory::Take(const TensorSpec& spec, const c10::Stream& reader) {
  const at::ScalarType type = ToScalarType(spec.dtype);
  const int64_t elements =
      std::accumulate(spec.shape.begin(), spec.shape.end(), int64_t{1}, std::multiplies<>());
  Slot slot = FreeSlot(elements * static_cast<int64_t>(c10::elementSize(type)));
  AwaitReaders(slot);
  void* const memory = slot.bytes.data_ptr();
  Readers::Get().Begin(memory, reader);
  return at::for_blob(memory, spec.shape)
      .deleter([self = shared_from_this(), bytes = std::move(slot.bytes)](void*) mutable {
        self->GiveBack(std::move(bytes));
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
    AwaitReaders(free_.front());
    free_.erase(free_.begin());
  }
  const c10::StreamGuard guard(arrival_);
  return {at::empty({bytes}, at::TensorOptions(at::kByte).device(arrival_.device())), {}};
}

void MessageMemory::GiveBack(at::Tensor bytes) {
  std::vector<c10::Event> read;
  for (const c10::Stream& reader : Readers::Get().End(bytes.data_ptr())) {
    read.emplace_back(reader.device_type()).record(reader);
  }
  const std::lock_guard lock(mutex_);
  free_.push_back({std::move(bytes), std::move(read)});
}

}  // namespace strata
