// Group: some ranks of a transport, and the collectives and messages between them.
//
// A call is described by a plain value (Collective). Run() does it and waits; Start() returns a
// handle (Pending). All ranks of a group must make the same collectives in the same order, with
// tensors of the same sizes and dtypes. A message (kSend, kRecv) concerns its two ends only. Both
// ends must have it at the same point in their order of collectives.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "engine/comm/comm_log.h"

namespace strata {

/// The name and the ranks of a group; the same value on every rank.
struct GroupSpec {
  std::string name;  ///< "data", "model"; a rank is in at most one group of each name
  std::vector<int>
      ranks;  ///< numbers of the transport's ranks, each once; ranks[p] is at place p of the group
  bool operator==(const GroupSpec&) const = default;
};

/// kAvg is the sum divided by the number of ranks; only for floating-point tensors.
enum class ReduceOp { kSum, kAvg, kMin, kMax, kProduct };

/// One call, a collective or a message. Between threads and over Gloo a reduction combines the
/// ranks' values in ascending order of their places, element by element. So every rank gets the
/// same bits, and the bits do not depend on timing, on the size of the tensor or on `bounds`. NCCL
/// has its own order, which is also the same on all ranks.
struct Collective {
  enum class Kind {
    kAllReduce,
    kBroadcast,
    kAllGather,
    kReduceScatter,
    kAllToAll,
    kBarrier,
    kSend,  ///< sends a message to another place; done once the input may be written to again
    kRecv,  ///< receives the next message from another place; its kSend must have the same size
  };
  Kind kind = Kind::kBarrier;
  ReduceOp op = ReduceOp::kSum;
  int root = 0;  ///< the place that sends a broadcast; for a message, the place of the other end
  at::Tensor input = {};   ///< undefined for a barrier
  at::Tensor output = {};  ///< may be `input` (all-reduce, broadcast); is `input` for a message
  /// For all-gather and reduce-scatter: where the parts of the longer tensor begin and end, in
  /// elements, as size() + 1 ascending numbers. Empty: equal parts.
  std::vector<int64_t> bounds = {};
};

/// The name for users: "all_reduce", "broadcast", ...
const char* CollectiveName(Collective::Kind kind);

/// A call that was started. It keeps its tensors alive.
class Pending {
 public:
  virtual ~Pending() = default;
  /// Waits for the output, at most `seconds`. Returns true when the host may read it; on an
  /// accelerator, when work that the current stream gets from now on may read it. Returns false
  /// when the time is over; the call then goes on. Throws the WorldError that ended the call.
  virtual bool Wait(double seconds = std::numeric_limits<double>::infinity()) = 0;
  /// True when Wait() would return or throw at once.
  virtual bool done() const = 0;
};

/// One rank's end of a group. One thread calls it. Started calls run one after the other on a
/// thread or stream of the group. Only the group uses its links. Transport::Abort() ends all calls
/// within milliseconds.
///
/// Errors: WorldError when the transport was aborted or a peer is gone; ConfigError for tensors
/// that do not fit the call (CheckCollective()).
class Group {
 public:
  /// `rank` of the transport must be in spec.ranks.
  explicit Group(GroupSpec spec, int rank);
  virtual ~Group() = default;
  const GroupSpec& spec() const { return spec_; }
  int size() const { return static_cast<int>(spec_.ranks.size()); }
  /// This rank's place in the group.
  int place() const { return place_; }

  /// Starts a call and returns at once. Until it is done, the caller must not write to the input
  /// and must not read or write the output.
  virtual std::shared_ptr<Pending> Start(Collective collective) = 0;
  /// Does the same as Start() and Wait(), with less overhead.
  virtual void Run(Collective collective) = 0;

  /// The rank of the transport that this end is waiting for now; -1 for none or unknown. Any thread
  /// may read it, for reports.
  const std::atomic<int>& awaited() const { return awaited_; }

  /// From now on calls are timed and counted in `log`; null ends that. No call may be under way.
  void set_log(std::shared_ptr<CommLog> log) { log_ = std::move(log); }

  // Each of these is Run() of one kind of call, with equal parts. Those with one tensor work in
  // place.
  void AllReduce(const at::Tensor& tensor, ReduceOp op = ReduceOp::kSum);
  /// Copies the tensor of place `root` into the tensor of every rank.
  void Broadcast(const at::Tensor& tensor, int root);
  /// Writes the inputs of all ranks, in the order of places, one behind the other into `output`.
  void AllGather(const at::Tensor& input, const at::Tensor& output);
  /// Reduces all inputs, cuts the result into size() equal parts, and writes part place() to
  /// `output`.
  void ReduceScatter(const at::Tensor& input, const at::Tensor& output,
                     ReduceOp op = ReduceOp::kSum);
  /// Part j of `input` goes to place j; part i of `output` comes from place i.
  void AllToAll(const at::Tensor& input, const at::Tensor& output);
  /// Waits until all ranks of the group have called it.
  void Barrier();
  /// Messages from one place to another arrive in the order in which they were sent. Send() does
  /// not wait for its Recv(), except on NCCL: there, two ranks that both send to each other before
  /// they receive wait for ever.
  void Send(const at::Tensor& tensor, int place);
  void Recv(const at::Tensor& tensor, int place);

 protected:
  std::atomic<int> awaited_ = -1;
  std::shared_ptr<CommLog> log_;

 private:
  GroupSpec spec_;
  int place_;
};

/// Throws ConfigError unless the tensors are contiguous, of one dtype and device, and of sizes that
/// fit the collective in a group of `size` ranks.
void CheckCollective(const Collective& collective, int size);

/// The bounds (parts + 1 numbers) that cut `elements` elements into `parts` parts. Every part
/// begins at a multiple of `align` or at the end. The parts are equal; the last ones may be shorter
/// or empty.
std::vector<int64_t> EvenBounds(int64_t elements, int parts, int64_t align = 1);

}  // namespace strata
