// NcclCommunicator: one rank's end of an NCCL communicator, its stream, and how both end.
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

/// Makes what `later` gets from now on wait for what `earlier` has got so far. The host does not
/// wait.
void Order(const c10::Stream& earlier, const c10::Stream& later);
/// The calling thread's.
c10::Stream CurrentStream(const c10::Device& device);

/// Streams of a device, each given out once: two communicators on one stream would wait for each
/// other's messages.
class StreamPool {
 public:
  explicit StreamPool(c10::Device device) : device_(device) {}
  /// Throws ConfigError when the device has no more.
  c10::Stream Take();

 private:
  const c10::Device device_;
  std::set<c10::StreamId> taken_;
};

/// A group of NCCL's that is ended in any case: one left open would take in all later calls.
class NcclCallGroup {
 public:
  explicit NcclCallGroup(NcclCalls& nccl) : nccl_(nccl), started_(nccl.GroupStart()) {}
  ~NcclCallGroup() {
    if (started_ == NcclResult::kDone) nccl_.GroupEnd();
  }
  NcclCallGroup(const NcclCallGroup&) = delete;
  NcclCallGroup& operator=(const NcclCallGroup&) = delete;

  /// Makes the calls and ends the group. What failed first is the result.
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

/// A call of NCCL's that may be under way (NcclCalls) is waited for by asking, with the lock free
/// in between. So Abort() never waits for the rank's thread, which then throws the reason of the
/// abort, and no thread uses a communicator that is freed.
///
///   BeginOpening, within a group of many; AwaitOpening; Connect; then Launch() in any number.
class NcclCommunicator {
 public:
  /// `name`: for errors, such as "the link from rank 0 to rank 1".
  NcclCommunicator(NcclCalls& nccl, std::string name, c10::Stream stream)
      : nccl_(nccl), name_(std::move(name)), stream_(stream) {}
  /// Ends it cleanly once all that was launched is done, for which the other ranks have some
  /// seconds to come. Then, or at once where an exception ends the rank, it is aborted.
  ~NcclCommunicator();
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  const std::string& name() const { return name_; }
  const c10::Stream& stream() const { return stream_; }
  c10::Device device() const { return stream_.device(); }

  /// That, and Connect(), throw PeerError if both are not done `seconds` from now.
  void BeginOpening(int ranks, const std::string& id, int place, double seconds);
  void AwaitOpening();

  /// Makes the calls, which begin together, and waits until they are in the stream. Calls return
  /// the first result that is not kDone. Throws WorldError: NCCL's reason, or that of Abort().
  using Calls = std::function<NcclResult(NcclComm*, const c10::Stream&)>;
  void Launch(const char* doing, const Calls& calls);
  /// The same with a byte of its own, for calls that do nothing but connect the ranks.
  void Connect(
      const std::function<NcclResult(NcclMemory byte, NcclComm*, const c10::Stream&)>& calls);
  /// Throws when the communicator has ended: what was launched may never have been done.
  void Check();
  /// From any thread: why it has failed; "" while it works, and once it has ended.
  std::string Failure();
  /// From any thread. Ends what was launched, unfinished.
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
  const int exceptions_ = std::uncaught_exceptions();  // under way when it was made
  at::Tensor byte_;                                    // of Connect()
  double seconds_ = 0;                                 // that opening may take; 0 = it is open
  std::chrono::steady_clock::time_point begin_;        // of opening
  std::mutex mutex_;                                   // of what follows
  NcclComm* comm_ = nullptr;
  bool is_aborted_ = false;
  std::string why_;
};

}  // namespace strata
