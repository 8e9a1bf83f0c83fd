#include "engine/comm/cuda/nccl_communicator.h"

#include <ATen/ops/zeros.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <chrono>
#include <exception>
#include <thread>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/comm/peer_error.h"

namespace strata {
namespace {

/// The time that the destructor gives a communicator to close cleanly.
constexpr auto kEnding = std::chrono::seconds(2);

}  // namespace

void Order(const c10::Stream& earlier, const c10::Stream& later) {
  c10::Event event(earlier.device_type());
  event.record(earlier);
  event.block(later);
}

c10::Stream CurrentStream(const c10::Device& device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

/// LibTorch has pools of 32 streams, one for each priority, and hands their streams out in turn. So
/// 32 calls for each priority return every stream once.
c10::Stream StreamPool::Take() {
  const c10::impl::VirtualGuardImpl devices(device_.type());
  for (const bool high_priority : {true, false}) {
    for (int i = 0; i < 32; ++i) {
      const c10::Stream stream = devices.getStreamFromGlobalPool(device_, high_priority);
      if (taken_.insert(stream.id()).second) return stream;
    }
  }
  throw ConfigError(Str("more links and groups of a rank than ", device_, " has streams, ",
                        taken_.size(), "; fewer stages or groups, or another transport"));
}

NcclCommunicator::~NcclCommunicator() {
  try {
    if (std::uncaught_exceptions() == exceptions_ && EndsCleanly()) return;
  } catch (const std::exception&) {  // the launched work will never be done
  }
  Abort("the transport was closed");
}

/// Returns true if all launched work is done or the communicator has ended. Throws if it has
/// failed, so that the work will never be done.
bool NcclCommunicator::IsDone() {
  {
    const std::lock_guard lock(mutex_);
    if (comm_ == nullptr) return true;
  }
  if (stream_.query()) return true;
  Check();
  std::this_thread::sleep_for(std::chrono::microseconds(50));
  return false;
}

bool NcclCommunicator::EndsCleanly() {
  const auto end = std::chrono::steady_clock::now() + kEnding;
  while (!IsDone()) {
    if (std::chrono::steady_clock::now() > end) return false;
  }
  const std::lock_guard lock(mutex_);
  if (comm_ == nullptr) return true;
  NcclResult result = nccl_.Finalize(comm_);
  while (result == NcclResult::kUnderWay && std::chrono::steady_clock::now() < end) {
    std::this_thread::yield();
    result = nccl_.State(comm_);
  }
  if (result != NcclResult::kDone) return false;
  nccl_.Destroy(std::exchange(comm_, nullptr));
  return true;
}

void NcclCommunicator::BeginOpening(int ranks, const std::string& id, int place, double seconds) {
  seconds_ = seconds;
  begin_ = std::chrono::steady_clock::now();
  const std::lock_guard lock(mutex_);
  const NcclResult result = nccl_.Open(comm_, ranks, id, place);
  if (result != NcclResult::kDone && result != NcclResult::kUnderWay) Throw(result, "opening ");
}

void NcclCommunicator::AwaitOpening() { Await(NcclResult::kUnderWay, "opening "); }

void NcclCommunicator::Launch(const char* doing, const Calls& calls) {
  NcclResult result;
  {
    const std::lock_guard lock(mutex_);
    ThrowIfAborted();
    result = NcclCallGroup(nccl_).Run([&] { return calls(comm_, stream_); });
  }
  Await(result, doing);
}

void NcclCommunicator::Connect(
    const std::function<NcclResult(NcclMemory byte, NcclComm*, const c10::Stream&)>& calls) {
  {
    const c10::StreamGuard guard(stream_);
    byte_ = at::zeros({1}, at::TensorOptions(at::kByte).device(device()));
  }
  Launch("connecting ", [&](NcclComm* comm, const c10::Stream& stream) {
    return calls({byte_.data_ptr(), 1, at::kByte}, comm, stream);
  });
  seconds_ = 0;
}

void NcclCommunicator::Check() {
  const std::lock_guard lock(mutex_);
  ThrowIfAborted();
  const NcclResult result = nccl_.State(comm_);
  if (result != NcclResult::kDone) Throw(result, "");
}

std::string NcclCommunicator::Failure() {
  const std::lock_guard lock(mutex_);
  if (comm_ == nullptr) return "";
  const NcclResult state = nccl_.State(comm_);
  const bool works = state == NcclResult::kDone || state == NcclResult::kUnderWay;
  return works ? "" : Str(name_, ": NCCL: ", nccl_.Why(comm_, state));
}

void NcclCommunicator::Abort(const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (is_aborted_) return;
  is_aborted_ = true;
  why_ = why;
  if (comm_ != nullptr) nccl_.Abort(std::exchange(comm_, nullptr));
}

void NcclCommunicator::ThrowIfAborted() const {
  if (is_aborted_) throw WorldError(why_);
}

void NcclCommunicator::Await(NcclResult result, const char* doing) {
  while (result == NcclResult::kUnderWay) {
    std::this_thread::yield();
    const std::lock_guard lock(mutex_);
    ThrowIfAborted();
    ThrowIfLate(doing);
    result = nccl_.State(comm_);
  }
  if (result == NcclResult::kDone) return;
  const std::lock_guard lock(mutex_);
  ThrowIfAborted();
  Throw(result, doing);
}

/// Throws PeerError when opening takes too long. NCCL itself retries for ever when ranks cannot
/// reach each other, and no watchdog runs yet while the communicators are opened.
void NcclCommunicator::ThrowIfLate(const char* doing) const {
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin_;
  if (seconds_ == 0 || taken.count() < seconds_) return;
  throw PeerError(Str(doing, name_, ": it is not open after ", FormatSeconds(seconds_),
                      "; the ranks may not reach each other over the network interface that NCCL ",
                      "chose (NCCL_SOCKET_IFNAME=NAME says another, NCCL_DEBUG=INFO which it is)"));
}

void NcclCommunicator::Throw(NcclResult result, const char* doing) {
  const std::string text = Str(doing, name_, ": NCCL: ", nccl_.Why(comm_, result));
  if (result == NcclResult::kPeerIsGone) throw PeerError(text);
  throw WorldError(text);
}

}  // namespace strata
