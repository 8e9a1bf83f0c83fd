// Transport: how the ranks of one job reach each other. Three implementations with the same
// behaviour: threads of one process, Gloo between CPU processes, NCCL between GPUs. Nothing above
// this header knows c10d.
#pragma once

#include <ATen/core/Tensor.h>

#include <compare>
#include <string>
#include <vector>

#include "engine/spec/tensor_spec.h"

namespace strata {

class Group;  // group.h

/// One direction between two ranks, first in first out. Both ends know the shapes of every message.
/// Between threads and over Gloo the tensors arrive with the strides that they had; over NCCL they
/// are contiguous.
/// Errors: WorldError naming the peer when the transport was aborted or the peer is gone.
class SendLink {
 public:
  virtual ~SendLink() = default;
  /// Starts sending and returns at once; the link keeps the tensors until they have left. The
  /// caller must not write to them afterwards.
  virtual void Send(const std::vector<at::Tensor>& tensors) = 0;
  /// Waits until everything has left.
  virtual void Flush() = 0;
};

class RecvLink {
 public:
  virtual ~RecvLink() = default;
  /// Announces the next message, so that it can arrive while the rank computes. At most as many
  /// are posted as buffers are free.
  virtual void Post(const TensorSpecs& specs) = 0;
  /// Waits for the oldest posted message. The tensors belong to the caller.
  virtual std::vector<at::Tensor> Wait() = 0;
};

/// Where a rank finds its links.
class Links {
 public:
  virtual ~Links() = default;
  /// The link to or from `peer` for `channel` (0 = activations, 1 = gradients; others belong to
  /// groups). All links are opened up front, in one order on all ranks; asking for another one is a
  /// broken invariant.
  virtual SendLink& send_link(int peer, int channel) = 0;
  virtual RecvLink& recv_link(int peer, int channel) = 0;
};

/// One rank's end. Used by one thread, but for Abort(), SetStatus() and Statuses().
class Transport : public Links {
 public:
  virtual int rank() const = 0;
  virtual int world_size() const = 0;
  /// "threads", "gloo" or "nccl".
  virtual const char* name() const = 0;

  /// The group of this name that this rank is in; null when none was opened. Its tensors are where
  /// the transport's are: over NCCL on the GPU, else in the host's memory.
  virtual Group* FindGroup(const std::string& name) {
    (void)name;
    return nullptr;
  }
  /// The same for tensors in the host's memory; null where none was opened for those.
  virtual Group* FindHostGroup(const std::string& name) { return FindGroup(name); }

  /// Collective over all ranks, small control data on the host. Sums elementwise in ascending order
  /// of ranks, so that every rank gets the same bits.
  virtual std::vector<double> AllReduceSum(const std::vector<double>& values) = 0;
  /// Collective: `text` of rank `root` on every rank.
  virtual std::string Broadcast(const std::string& text, int root) = 0;
  /// Collective: the texts of all ranks, by rank, on every rank.
  virtual std::vector<std::string> Gather(const std::string& text) = 0;
  virtual void Barrier() = 0;

  /// From any thread: everything that waits or will wait on this rank throws WorldError(`why`)
  /// within milliseconds. For the watchdog and for the launcher's news of a dead peer.
  virtual void Abort(const std::string& why) = 0;

  /// From any thread: leaves a word for the watchdogs of the other ranks, such as "rank 0 reads
  /// micro-batch 3 from data.lua:7". A rank that left one is slow, not dead: nobody aborts because
  /// of it. "" takes it back. A transport may be unable to carry words.
  virtual void SetStatus(const std::string& status) { (void)status; }
  /// From any thread: the words of the ranks that left one.
  virtual std::vector<std::string> Statuses() { return {}; }
};

/// A pair of directions that the job needs: rank `from` sends to rank `to` on `channel`.
struct LinkSpec {
  int from = 0;
  int to = 0;
  int channel = 0;
  auto operator<=>(const LinkSpec&) const = default;
};

}  // namespace strata
