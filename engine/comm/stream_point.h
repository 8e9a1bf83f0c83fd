// StreamPoint: a point in the work queue of an accelerator's stream (a CUDA event).
#pragma once

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <memory>

namespace strata {

/// On the CPU all its functions do nothing, since work on the CPU is done when its call returns.
class StreamPoint {
 public:
  StreamPoint() = default;
  /// The point behind all work that the calling thread's current stream on `device` has got so far.
  explicit StreamPoint(c10::Device device) : device_(device) {
    if (device.is_cpu()) return;
    event_ = std::make_unique<c10::Event>(device.type());
    event_->record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
  }
  /// Makes the calling thread's current stream wait for this point before it does further work.
  /// The host does not wait.
  void Block() const {
    if (event_) event_->block(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
  }

 private:
  c10::Device device_ = c10::kCPU;
  std::unique_ptr<c10::Event> event_;
};

}  // namespace strata
