#include "tests/shadow/device.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <set>

#include "tests/shadow/kernels.h"
#include "tests/shadow/machine.h"

namespace strata::shadow {
namespace {

std::atomic<int> shown = kDevices;

struct ThreadState {
  c10::DeviceIndex device = 0;
  std::array<int, kDevices> streams;  // current, by device
  ThreadState() {
    for (int device = 0; device < kDevices; ++device) streams[device] = device;
  }
};
thread_local ThreadState thread_state;

using EventPoint = std::shared_ptr<Point>;

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kType; }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device old = getDevice();
    setDevice(device);
    return old;
  }
  c10::Device getDevice() const override { return {kType, thread_state.device}; }
  void setDevice(c10::Device device) const override {
    TORCH_CHECK(device.index() < kDevices, "there is no ", device);
    uncheckedSetDevice(device);
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.has_index()) thread_state.device = device.index();
  }
  c10::Stream getStream(c10::Device device) const override {
    return Machine::Get().StreamOf(CurrentStream(IndexOf(device)));
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::DEFAULT, c10::Device(kType, IndexOf(device)));
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override {
    return getNewStream(device, 0);
  }
  c10::Stream getNewStream(c10::Device device, int) const override {
    return Machine::Get().StreamOf(Machine::Get().NewStream(IndexOf(device)));
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    const c10::Stream old = getStream(stream.device());
    thread_state.streams[stream.device_index()] = Machine::Get().NumberOf(stream);
    return old;
  }
  c10::DeviceIndex deviceCount() const noexcept override {
    return static_cast<c10::DeviceIndex>(shown.load());
  }
  void* getStreamNativeHandle(const c10::Stream stream) const override {
    return reinterpret_cast<void*>(static_cast<intptr_t>(Machine::Get().NumberOf(stream)));
  }

  void record(void** event, const c10::Stream& stream, c10::DeviceIndex,
              c10::EventFlag) const override {
    if (*event == nullptr) *event = new EventPoint;
    PointOf(*event) = Machine::Get().Record(Machine::Get().NumberOf(stream));
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event) Machine::Get().Wait(Machine::Get().NumberOf(stream), PointOf(event));
  }
  bool queryEvent(void* event) const override {
    return event == nullptr || Machine::Get().HasReached(*PointOf(event));
  }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override {
    delete static_cast<EventPoint*>(event);
  }
  bool queryStream(const c10::Stream& stream) const override {
    return Machine::Get().HasReached(*Machine::Get().Record(Machine::Get().NumberOf(stream)));
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    Machine::Get().Synchronise(Machine::Get().NumberOf(stream), "synchronizeStream");
  }
  void synchronizeEvent(void* event) const override {
    if (event) Machine::Get().Synchronise(PointOf(event), "synchronizeEvent");
  }
  void synchronizeDevice(c10::DeviceIndex device) const override {
    Machine::Get().Synchronise(CurrentStream(device), "synchronizeDevice");
  }
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    Machine::Get().RecordStream(data.get(), Machine::Get().NumberOf(stream));
  }

 private:
  static EventPoint& PointOf(void* event) { return *static_cast<EventPoint*>(event); }
  static c10::DeviceIndex IndexOf(c10::Device device) {
    return device.has_index() ? device.index() : thread_state.device;
  }
};

class Allocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const c10::Device device(kType, thread_state.device);
    if (bytes == 0) return {nullptr, device};
    void* memory = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
    TORCH_CHECK(memory != nullptr, "no memory on ", device);
    Machine::Get().Allocated(memory, bytes, CurrentStream(device.index()));
    return {memory, memory, &Free, device};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &Free; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const c10::DataPtr& data, c10::Stream stream) override {
    Machine::Get().RecordStream(data.get(), Machine::Get().NumberOf(stream));
  }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    c10::CachingDeviceAllocator::DeviceStats stats;
    stats.allocated_bytes[0].current = Machine::Get().bytes(device);
    stats.allocated_bytes[0].peak = Machine::Get().peak_bytes(device);
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex device) override { Machine::Get().ResetPeak(device); }

 private:
  static void Free(void* memory) {
    Machine::Get().Freed(memory, [memory] { std::free(memory); });
  }
};
Allocator allocator;

/// Memory of the host that copies need not wait for.
class PinnedAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, c10::Device(c10::kCPU)};
    void* memory = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
    const std::lock_guard lock(mutex());
    pinned()[static_cast<std::byte*>(memory)] = bytes;
    return {memory, memory, &Free, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &Free; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }
  static bool Has(const void* memory) {
    const std::lock_guard lock(mutex());
    const auto* begin = static_cast<const std::byte*>(memory);
    auto found = pinned().upper_bound(begin);
    return found != pinned().begin() && begin < (--found)->first + found->second;
  }

 private:
  static void Free(void* memory) {
    const std::lock_guard lock(mutex());
    pinned().erase(static_cast<std::byte*>(memory));
    std::free(memory);
  }
  static std::mutex& mutex() {
    static auto* mutex = new std::mutex;
    return *mutex;
  }
  static std::map<const std::byte*, size_t>& pinned() {
    static auto* pinned = new std::map<const std::byte*, size_t>;
    return *pinned;
  }
};
PinnedAllocator pinned_allocator;

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return kDevices; }
  c10::DeviceIndex getCurrentDevice() const override { return thread_state.device; }
  void setCurrentDevice(c10::DeviceIndex device) const override { thread_state.device = device; }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
    return std::exchange(thread_state.device, device);
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override {
    return exchangeDevice(device);
  }
  bool isPinnedPtr(const void* memory) const override {
    return PinnedAllocator::Has(memory) && Machine::Get().KnowsPinned();
  }
  at::Allocator* getPinnedMemoryAllocator() const override { return &pinned_allocator; }
  at::Device getDeviceFromPtr(void*) const override { return {kType, thread_state.device}; }
  at::Generator getNewGenerator(c10::DeviceIndex index) const override {
    return at::make_generator<ShadowGenerator>(index < 0 ? thread_state.device : index);
  }
};

bool Register() {
  c10::register_privateuse1_backend("shadow");
  static Hooks hooks;
  at::RegisterPrivateUse1HooksInterface(&hooks);
  c10::SetAllocator(kType, &allocator);
  static Guard guard;
  c10::impl::device_guard_impl_registry[static_cast<size_t>(kType)].store(&guard);
  RegisterKernels(allocator);
  return true;
}

}  // namespace

c10::Device Device(int index) {
  static const bool registered = Register();
  TORCH_CHECK(registered && index < kDevices, "there is no shadow:", index);
  return {kType, static_cast<c10::DeviceIndex>(index)};
}

void ShowDevices(int count) { shown = count; }

int CurrentStream(int device) { return thread_state.streams[device]; }

}  // namespace strata::shadow
