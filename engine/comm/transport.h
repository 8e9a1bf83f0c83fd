// Transport: how the ranks of one job send each other tensors and texts. There are three
// implementations with the same behaviour: threads of one process, Gloo between CPU processes, NCCL
// between GPUs. Code above this header does not use c10d.
#pragma once

#include <ATen/core/Tensor.h>

#include <compare>
#include <string>
#include <vector>

#include "engine/base/fields/tensor_spec.h"

namespace strata {

class Group;  // group.h

/// The sending end of a link: one direction between two ranks, first in, first out. Both ends know
/// the shapes of every message. Between threads and over Gloo the tensors arrive with the strides
/// that they had; over NCCL they arrive contiguous. Errors: WorldError that names the peer when the
/// transport was aborted or the peer is gone.
class SendLink {
 public:
  virtual ~SendLink() = default;
  /// Starts sending and returns without waiting for the receiver. The link keeps the tensors alive
  /// until they have been sent. The caller must not write to them afterwards.
  virtual void Send(const std::vector<at::Tensor>& tensors) = 0;
  /// Waits until everything has been sent.
  virtual void Flush() = 0;
};

/// The receiving end of a link.
class RecvLink {
 public:
  virtual ~RecvLink() = default;
  /// Announces the next message, so that it can arrive while the rank computes. The caller posts at
  /// most as many messages as it has free buffers.
  virtual void Post(const TensorSpecs& specs) = 0;
  /// Does the same for a message of one tensor, which may arrive in the memory of `where`: a
  /// contiguous tensor of that spec that nobody uses until Wait(). The tensor that Wait() returns
  /// is `where` or another one.
  virtual void PostInto(const TensorSpec& spec, const at::Tensor& where) {
    (void)where;
    Post({spec});
  }
  /// Waits for the oldest posted message and returns its tensors, which then belong to the caller.
  virtual std::vector<at::Tensor> Wait() = 0;
};

/// A rank's links, by peer and channel.
class Links {
 public:
  virtual ~Links() = default;
  /// The link to or from `peer` for `channel` (0 = activations, 1 = gradients; others belong to
  /// groups). All links are opened up front, in the same order on all ranks. Asking for a link that
  /// was not opened aborts the program.
  virtual SendLink& send_link(int peer, int channel) = 0;
  virtual RecvLink& recv_link(int peer, int channel) = 0;
};

/// One rank's end of the transport. One thread calls it; only Abort(), AbortIfBroken(), SetStatus()
/// and Statuses() may be called from any thread. All ranks must make the same collective calls in
/// the same order.
class Transport : public Links {
 public:
  virtual int rank() const = 0;
  virtual int world_size() const = 0;
  /// "threads", "gloo" or "nccl".
  virtual const char* name() const = 0;

  /// The group of this name that contains this rank; null if none was opened. Over NCCL its tensors
  /// must be on the GPU, otherwise in the host's memory.
  virtual Group* FindGroup(const std::string& name) {
    (void)name;
    return nullptr;
  }
  /// The group of this name for tensors in the host's memory; null if none was opened for them.
  virtual Group* FindHostGroup(const std::string& name) { return FindGroup(name); }

  /// Collective: the elementwise sum of all ranks' values, for small control data on the host. The
  /// terms are added in ascending order of ranks, so every rank gets the same bits.
  virtual std::vector<double> AllReduceSum(const std::vector<double>& values) = 0;
  /// Collective: returns the `text` of rank `root` on every rank.
  virtual std::string Broadcast(const std::string& text, int root) = 0;
  /// Collective: returns the texts of all ranks, by rank, on every rank.
  virtual std::vector<std::string> Gather(const std::string& text) = 0;
  /// Collective: waits until all ranks have called it.
  virtual void Barrier() = 0;

  /// From any thread: makes all waits of this rank, present and later ones, throw WorldError(`why`)
  /// within milliseconds. The watchdog calls it, and so does the rank when the launcher reports a
  /// dead peer.
  virtual void Abort(const std::string& why) = 0;

  /// From any thread: calls Abort() if a peer is known to be gone. The watchdog calls this at
  /// intervals, because a rank that waits for its device does not notice a lost peer by itself.
  virtual void AbortIfBroken() {}

  /// From any thread: publishes a status to the watchdogs of the other ranks, such as "rank 0 reads
  /// micro-batch 3 from data.lua:7". They treat a rank with a status as slow, not dead, and do not
  /// abort because of it. "" removes the status. A transport may ignore this.
  virtual void SetStatus(const std::string& status) { (void)status; }
  /// From any thread: the statuses of all ranks that have one.
  virtual std::vector<std::string> Statuses() { return {}; }
};

/// One link that the job needs: rank `from` sends to rank `to` on `channel`.
struct LinkSpec {
  int from = 0;
  int to = 0;
  int channel = 0;
  auto operator<=>(const LinkSpec&) const = default;
};

}  // namespace strata
