// Group: some ranks of a transport, in an order of their own, and the collectives between them.
//
// A collective is a plain value first (Collective); a group runs it, or starts it and gives a
// handle. Every rank of a group asks for the same collectives in the same order, with tensors of
// the same size and dtype. A message concerns its two ends only, and takes its turn among the
// collectives at both: what came before it at one end came before it at the other.
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

/// Who forms a group; the same value on every rank.
struct GroupSpec {
  std::string name;        ///< "data", "model": a rank is in at most one group of a name
  std::vector<int> ranks;  ///< of the transport, each once; places in the group count from 0
  bool operator==(const GroupSpec&) const = default;
};

/// kAvg is the sum divided by the number of ranks; only for floating-point tensors.
enum class ReduceOp { kSum, kAvg, kMin, kMax, kProduct };

/// Between threads and over Gloo, reductions combine the ranks' values in ascending order of their
/// places, element by element: every rank gets the same bits, whatever the timing, the size of the
/// message and the bounds of the parts. NCCL has an order of its own, also the same on all ranks.
struct Collective {
  enum class Kind {
    kAllReduce,
    kBroadcast,
    kAllGather,
    kReduceScatter,
    kAllToAll,
    kBarrier,
    kSend,  ///< a message to one other place; done once the input may be written to again
    kRecv,  ///< the next message of another place, which made a kSend of the same size
  };
  Kind kind = Kind::kBarrier;
  ReduceOp op = ReduceOp::kSum;
  int root = 0;       ///< of a broadcast: a place in the group; of a message: the other's place
  at::Tensor input;   ///< undefined for a barrier; of a message both are the one tensor
  at::Tensor output;  ///< may be the input itself (all-reduce and broadcast)
  /// Where the parts of the longer tensor begin and end, in elements: size() + 1 ascending numbers.
  /// Empty: equal parts. Of an all-gather and a reduce-scatter.
  std::vector<int64_t> bounds;
};

/// "all_reduce", ...
const char* CollectiveName(Collective::Kind kind);

/// A collective that was started. It keeps its tensors alive.
class Pending {
 public:
  virtual ~Pending() = default;
  /// Returns true once the output is there: for the host, or on an accelerator for what the current
  /// stream does next. Returns false when `seconds` pass before; the collective goes on then.
  /// Throws the WorldError that ended it.
  virtual bool Wait(double seconds = std::numeric_limits<double>::infinity()) = 0;
  /// Whether Wait() would return or throw at once.
  virtual bool done() const = 0;
};

/// One rank's end. Used by one thread; it does what it started on a thread or stream of its own,
/// one after the other, and is the only one to use its links. Transport::Abort() ends everything
/// within milliseconds.
///
/// Errors: WorldError as links; ConfigError for tensors that do not fit the call (CheckCollective).
class Group {
 public:
  explicit Group(GroupSpec spec, int rank);
  virtual ~Group() = default;
  const GroupSpec& spec() const { return spec_; }
  int size() const { return static_cast<int>(spec_.ranks.size()); }
  /// This rank's place in the group.
  int place() const { return place_; }

  /// Starts a collective and returns at once. Until it is done, nobody may write to its input, nor
  /// touch its output.
  virtual std::shared_ptr<Pending> Start(Collective collective) = 0;
  /// Start() and Wait(), at less cost.
  virtual void Run(Collective collective) = 0;

  /// The rank of the transport that this end waits for right now, -1 for none or unknown. For
  /// reports, from any thread.
  const std::atomic<int>& awaited() const { return awaited_; }

  /// Where calls are timed and counted from now on; null: nowhere. Not while something runs.
  void set_log(std::shared_ptr<CommLog> log) { log_ = std::move(log); }

  // Run(), in words. In place where there is one tensor.
  void AllReduce(const at::Tensor& tensor, ReduceOp op = ReduceOp::kSum);
  void Broadcast(const at::Tensor& tensor, int root);
  /// `output` is the ranks' inputs behind each other, in the order of places.
  void AllGather(const at::Tensor& input, const at::Tensor& output);
  /// The reduction of all inputs, cut in parts: this rank's part.
  void ReduceScatter(const at::Tensor& input, const at::Tensor& output,
                     ReduceOp op = ReduceOp::kSum);
  /// Part j of the input goes to place j; part i of the output came from place i.
  void AllToAll(const at::Tensor& input, const at::Tensor& output);
  void Barrier();
  /// Messages of one pair arrive in the order in which they were sent. A Send() does not wait for
  /// its Recv(), but on NCCL, where two ranks that send to each other at once wait for ever.
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

/// The bounds of the parts of `elements` elements, equal but for the last ones; every part begins
/// at a multiple of `align`.
std::vector<int64_t> EvenBounds(int64_t elements, int parts, int64_t align = 1);

}  // namespace strata
