// NcclCommunicator: one rank's end of an NCCL communicator with its stream. It opens, uses and
// closes the communicator without ever blocking in NCCL, so that another thread can abort it.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <chrono>
#include <exception>
#include <functional>
#include <mutex>
#include <set>
#include <string>

#include "engine/comm/cuda/nccl_calls.h"

namespace strata {

/// Makes all later work of the stream `later` wait for the work that `earlier` has been given so
/// far. The host does not wait.
void Order(const c10::Stream& earlier, const c10::Stream& later);
/// The current stream of the calling thread on `device`.
c10::Stream CurrentStream(const c10::Device& device);

/// Hands out streams of a device, each of them once. Two communicators that share a stream would
/// wait for each other's messages.
class StreamPool {
 public:
  explicit StreamPool(c10::Device device) : device_(device) {}
  /// Throws ConfigError when all streams of the device are taken.
  c10::Stream Take();

 private:
  const c10::Device device_;
  std::set<c10::StreamId> taken_;
};

/// A call group of NCCL (ncclGroupStart) that is always ended, also by an exception. A group left
/// open would swallow all later calls.
class NcclCallGroup {
 public:
  explicit NcclCallGroup(NcclCalls& nccl) : nccl_(nccl), started_(nccl.GroupStart()) {}
  ~NcclCallGroup() {
    if (started_ == NcclResult::kDone) nccl_.GroupEnd();
  }
  NcclCallGroup(const NcclCallGroup&) = delete;
  NcclCallGroup& operator=(const NcclCallGroup&) = delete;

  /// Makes the calls and ends the group. Returns the first result that is not kDone.
  template <class Calls>
  NcclResult Run(const Calls& calls) {
    if (started_ != NcclResult::kDone) return started_;
    const NcclResult made = calls();
    started_ = NcclResult::kFailed;
    const NcclResult ended = nccl_.GroupEnd();
    return made != NcclResult::kDone ? made : ended;
  }

 private:
  NcclCalls& nccl_;
  NcclResult started_;
};

/// A call that NCCL works on in the background (NcclResult::kUnderWay) is awaited by polling its
/// state. The mutex is free between two polls, so Abort(), from any thread, never waits for the
/// rank's thread. The rank's thread then throws the reason of the abort. The mutex also keeps every
/// thread from using a communicator that has been freed.
///
/// Order of calls: BeginOpening() (of several communicators, in one NcclCallGroup); AwaitOpening();
/// Connect(); then Launch() any number of times.
class NcclCommunicator {
 public:
  /// `name`: for errors, such as "the link from rank 0 to rank 1".
  NcclCommunicator(NcclCalls& nccl, std::string name, c10::Stream stream)
      : nccl_(nccl), name_(std::move(name)), stream_(stream) {}
  /// Waits up to two seconds until all launched work is done and then closes the communicator
  /// cleanly. If that takes longer, or if an exception is ending the rank, aborts the communicator
  /// instead.
  ~NcclCommunicator();
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  const std::string& name() const { return name_; }
  const c10::Stream& stream() const { return stream_; }
  c10::Device device() const { return stream_.device(); }

  /// Starts to open the communicator of `ranks` ranks, in which this rank has place `place`.
  /// AwaitOpening() and Connect() throw PeerError if they are not done `seconds` from now.
  void BeginOpening(int ranks, const std::string& id, int place, double seconds);
  void AwaitOpening();

  /// Makes the calls in one NCCL group, so that they start together, and waits until they are
  /// queued on the stream. `calls` returns the first result that is not kDone. `doing` begins an
  /// error text: "sending over ". Throws WorldError with NCCL's reason or the reason given to
  /// Abort(); PeerError when NCCL reports a lost peer.
  using Calls = std::function<NcclResult(NcclComm*, const c10::Stream&)>;
  void Launch(const char* doing, const Calls& calls);
  /// Does what Launch() does, with one byte of device memory, for calls whose only purpose is to
  /// connect the ranks. Ends the opening.
  ///
  /// Why it is needed: NCCL connects two ranks only at their first message, and blocks the host
  /// until both have made that call. Ranks of a pipeline post their receives ahead. So rank 0 could
  /// block in its first receive from rank 1 while rank 1 blocks in its first receive from rank 0,
  /// and neither would come to the send that the other waits for. Once all are connected, a call
  /// only queues work on the stream.
  void Connect(
      const std::function<NcclResult(NcclMemory byte, NcclComm*, const c10::Stream&)>& calls);
  /// Throws if the communicator was aborted or has failed; work that was launched may then never
  /// have been done.
  void Check();
  /// From any thread: the reason why the communicator has failed. "" while it works, and after it
  /// was closed or aborted.
  std::string Failure();
  /// From any thread: stops launched work before it is finished, and frees the communicator.
  void Abort(const std::string& why);

 private:
  void ThrowIfAborted() const;
  void Await(NcclResult result, const char* doing);
  void ThrowIfLate(const char* doing) const;
  [[noreturn]] void Throw(NcclResult result, const char* doing);
  bool IsDone();
  bool EndsCleanly();

  NcclCalls& nccl_;
  const std::string name_;
  const c10::Stream stream_;
  const int exceptions_ =
      std::uncaught_exceptions();  // exceptions under way when this object was made
  at::Tensor byte_;                // the memory of Connect()
  double seconds_ = 0;             // the limit for opening; 0 = the communicator is open
  std::chrono::steady_clock::time_point begin_;  // when opening began
  std::mutex mutex_;                             // guards the members below
  NcclComm* comm_ = nullptr;
  bool is_aborted_ = false;
  std::string why_;
};

}  // namespace strata
