// StreamPoint: a moment in what an accelerator has been told to do.
#pragma once

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <memory>

namespace strata {

/// On the CPU there is nothing to wait for.
class StreamPoint {
 public:
  StreamPoint() = default;
  /// All that the calling thread's current stream on `device` has been told until now.
  explicit StreamPoint(c10::Device device) : device_(device) {
    if (device.is_cpu()) return;
    event_ = std::make_unique<c10::Event>(device.type());
    event_->record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
  }
  /// What the calling thread's current stream is told from now on comes after it.
  void Block() const {
    if (event_) event_->block(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
  }

 private:
  c10::Device device_ = c10::kCPU;
  std::unique_ptr<c10::Event> event_;
};

}  // namespace strata
