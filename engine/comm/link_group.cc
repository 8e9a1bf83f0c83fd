// The algorithms of link_group.h. A call runs on the caller's thread (Run()) or on a worker thread
// of the group (Start()). It cuts the tensor into one part for each rank, exchanges parts over the
// links, and reduces this rank's own part. Cost for n ranks and a large tensor of B bytes: an
// all-reduce sends 2(n-1) messages and 2(n-1)/n B bytes from each rank in two rounds;
// reduce-scatter, all-gather and all-to-all send half of that in one round. Ranks that share memory
// (threads) receive the sender's own tensors. So a call sends a copy, or it returns only after the
// receivers have answered that they have read the tensor.
#include "engine/comm/link_group.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/zeros.h>
#include <c10/core/DeviceGuard.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <future>
#include <mutex>
#include <thread>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/tensors/allocator.h"
#include "engine/comm/specs.h"
#include "engine/comm/stream_point.h"

namespace strata {
namespace {

using Kind = Collective::Kind;
using Tensors = std::vector<at::Tensor>;
using Clock = std::chrono::steady_clock;

/// The channel of the links of group number `group`. Channels below 16 are for links between stages
/// and for control data.
int ChannelOf(size_t group) { return 16 + static_cast<int>(group); }

/// Up to this size it is quicker to send the whole tensor to all ranks than to send parts to their
/// owners and back.
constexpr size_t kSmallBytes = 16 << 10;
/// In groups of up to this many ranks every rank sends a small tensor to every other: one round of
/// messages. In larger groups small tensors go through the rank at place 0: two rounds, but only
/// 2(n-1) messages.
constexpr size_t kSmallGroup = 4;
/// In groups of up to this many ranks every pair of ranks has a connection.
constexpr size_t kWiredGroup = 16;
/// Parts begin at a multiple of this many elements, so that vector loops start aligned.
constexpr int64_t kAlign = 16;

/// Reduces the pieces in their order into `result`, which may be one of the first two. REQUIRES:
/// there are at least two pieces.
void ReduceInto(at::Tensor& result, const Tensors& pieces, ReduceOp op) {
  const auto combine = [op](at::Tensor& result, const at::Tensor& a, const at::Tensor& b) {
    switch (op) {
      case ReduceOp::kSum:
      case ReduceOp::kAvg:
        at::add_out(result, a, b);
        break;
      case ReduceOp::kMin:
        at::minimum_out(result, a, b);
        break;
      case ReduceOp::kMax:
        at::maximum_out(result, a, b);
        break;
      case ReduceOp::kProduct:
        at::mul_out(result, a, b);
        break;
    }
  };
  combine(result, pieces[0], pieces[1]);
  for (size_t i = 2; i < pieces.size(); ++i) combine(result, result, pieces[i]);
  if (op == ReduceOp::kAvg) result.div_(static_cast<double>(pieces.size()));
}

/// Reduces the pieces in their order into new memory.
at::Tensor Reduce(const Tensors& pieces, ReduceOp op) {
  at::Tensor result = at::empty_like(pieces[0]);
  ReduceInto(result, pieces, op);
  return result;
}

at::Tensor Flat(const at::Tensor& tensor) { return tensor.detach().view(-1); }

at::Tensor Part(const at::Tensor& flat, const std::vector<int64_t>& bounds, int place) {
  return flat.narrow(0, bounds[place], bounds[place + 1] - bounds[place]);
}

/// A call on the queue of the worker thread: waiting, running, or done.
class LinkPending : public Pending {
 public:
  explicit LinkPending(Collective asked)
      : collective(std::move(asked)), device_(DeviceOf(collective)), before_(device_) {}

  bool Wait(double seconds) override {
    constexpr double kForever = 1e9;  // the clock overflows at nine times as many seconds
    if (seconds >= kForever) {
      over_.wait();
    } else if (!IsOver(seconds)) {
      return false;
    }
    over_.get();  // rethrows the error that ended the call
    after_.Block();
    return true;
  }
  bool done() const override { return IsOver(0); }

  /// Does the call and sets its end; runs on the worker thread.
  void Do(const std::function<void(const Collective&)>& execute) {
    try {
      const c10::DeviceGuard guard(device_);
      before_.Block();
      execute(collective);
      after_ = StreamPoint(device_);
      collective = {};
      end_.set_value();
    } catch (...) {
      collective = {};
      end_.set_exception(std::current_exception());
    }
  }

  Collective collective;

 private:
  static c10::Device DeviceOf(const Collective& collective) {
    return collective.input.defined() ? collective.input.device() : c10::Device(c10::kCPU);
  }

  bool IsOver(double seconds) const {
    const std::chrono::duration<double> limit(seconds);
    return over_.wait_for(limit) == std::future_status::ready;
  }

  const c10::Device device_;
  const StreamPoint before_;
  StreamPoint after_;  // written before end_ is set, read after it
  std::promise<void> end_;
  const std::shared_future<void> over_ = end_.get_future().share();
};

/// A thread that does the started calls in order.
class Worker {
 public:
  Worker(int memory_account, std::function<void(const Collective&)> execute)
      : execute_(std::move(execute)), thread_([this, memory_account] {
          SetMemoryAccount(memory_account);
          Work();
        }) {}
  ~Worker() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  void Add(std::shared_ptr<LinkPending> pending) {
    {
      const std::lock_guard lock(mutex_);
      queue_.push_back(std::move(pending));
    }
    changed_.notify_one();
  }
  bool idle() const {
    const std::lock_guard lock(mutex_);
    return queue_.empty();
  }

 private:
  /// The thread's loop. A call stays at the front of the queue until it is done, so that idle() is
  /// false meanwhile.
  void Work() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return stop_ || !queue_.empty(); });
      if (queue_.empty()) return;
      const std::shared_ptr<LinkPending> pending = queue_.front();
      lock.unlock();
      pending->Do(execute_);
      lock.lock();
      queue_.pop_front();
    }
  }

  const std::function<void(const Collective&)> execute_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<LinkPending>> queue_;
  bool stop_ = false;
  std::thread thread_;
};

class LinkGroup : public Group {
 public:
  LinkGroup(Transport& transport, const GroupSpec& spec, int channel, SharesMemory shares_memory)
      : Group(spec, transport.rank()),
        memory_account_(transport.rank() % kMemoryAccounts),
        shares_memory_(shares_memory == SharesMemory::kYes) {
    for (int place = 0; place < size(); ++place) {
      if (place == this->place()) {
        peers_.push_back({});
        continue;
      }
      const int rank = spec.ranks[place];
      peers_.push_back({&transport.send_link(rank, channel), &transport.recv_link(rank, channel)});
    }
  }

  std::shared_ptr<Pending> Start(Collective collective) override {
    CheckCollective(collective, size());
    if (!worker_) {
      worker_ =
          std::make_unique<Worker>(memory_account_, [this](const Collective& c) { Execute(c); });
    }
    auto pending = std::make_shared<LinkPending>(std::move(collective));
    worker_->Add(pending);
    return pending;
  }

  void Run(Collective collective) override {
    if (worker_ && !worker_->idle()) {
      Start(std::move(collective))->Wait();
      return;
    }
    CheckCollective(collective, size());
    Execute(collective);
  }

 private:
  struct Peer {
    SendLink* send = nullptr;  // both are null for this rank's own place
    RecvLink* receive = nullptr;
  };

  void Execute(const Collective& collective) {
    const at::NoGradGuard no_grad;
    const auto start = Clock::now();
    Dispatch(collective);
    if (!log_) return;
    const std::chrono::duration<double> took = Clock::now() - start;
    const auto bytes = [](const at::Tensor& t) { return t.defined() ? t.nbytes() : 0; };
    log_->Add(CollectiveName(collective.kind), spec().name, size(),
              static_cast<int64_t>(std::max(bytes(collective.input), bytes(collective.output))),
              took.count());
  }

  void Dispatch(const Collective& collective) {
    switch (collective.kind) {
      case Kind::kAllReduce:
        return AllReduceFlat(collective);
      case Kind::kBroadcast:
        return BroadcastFlat(collective);
      case Kind::kAllGather:
        return AllGatherFlat(collective);
      case Kind::kReduceScatter:
        return ReduceScatterFlat(collective);
      case Kind::kAllToAll:
        return AllToAllFlat(collective);
      case Kind::kBarrier:
        return AllReduceSmall(at::zeros({1}, at::kByte), ReduceOp::kMax);
      case Kind::kSend:
        STRATA_CHECK(collective.root != place()) << "a message to itself";
        // Sends a copy, so that the caller need not wait until the other end has received it.
        return Send(collective.root, Flat(collective.input).clone());
      case Kind::kRecv:
        STRATA_CHECK(collective.root != place()) << "a message from itself";
        PostInto(collective.root, Flat(collective.output));
        CopyOver(Await(collective.root), collective.output);
    }
  }

  void AllReduceFlat(const Collective& collective) {
    const at::Tensor tensor = Flat(collective.output);
    CopyOver(collective.input, tensor);
    if (size() == 1 || tensor.numel() == 0) return;
    if (tensor.nbytes() <= kSmallBytes) return AllReduceSmall(tensor, collective.op);
    const std::vector<int64_t> bounds = EvenBounds(tensor.numel(), size(), kAlign);
    const at::Tensor part = Part(tensor, bounds, place());
    // With shared memory the others may still read this part when the caller writes to `tensor`
    // again.
    at::Tensor mine = shares_memory_ ? at::empty_like(part) : part;
    ReducePart(tensor, bounds, collective.op, mine);
    GatherParts(mine, tensor, bounds);
    Flush();
  }

  /// All-reduces a small tensor without parts. It sends a copy, which nobody writes to while others
  /// read it.
  void AllReduceSmall(const at::Tensor& tensor, ReduceOp op) {
    if (size() == 1) return;
    const at::Tensor mine = tensor.clone();
    if (spec().ranks.size() <= kSmallGroup) {
      Tensors pieces = Exchange([&](int) { return mine; }, [&](int) { return mine.numel(); });
      pieces[place()] = mine;
      tensor.copy_(Reduce(pieces, op));
    } else if (place() == 0) {
      ForEachPeer([&](int p) { peers_[p].receive->Post(SpecsOf({mine})); });
      Tensors pieces = {mine};
      for (int p = 1; p < size(); ++p) pieces.push_back(Await(p));
      const at::Tensor result = Reduce(pieces, op);
      ForEachPeer([&](int p) { Send(p, result); });
      tensor.copy_(result);
    } else {
      peers_[0].receive->Post(SpecsOf({mine}));
      Send(0, mine);
      tensor.copy_(Await(0));
    }
    Flush();
  }

  void ReduceScatterFlat(const Collective& collective) {
    const at::Tensor input = Flat(collective.input), output = Flat(collective.output);
    const std::vector<int64_t> bounds = BoundsOf(collective, input.numel());
    RequireOwnPart(output, bounds);
    if (size() == 1) return CopyOver(input, output);
    at::Tensor mine = output;
    ReducePart(input, bounds, collective.op, mine);
    Release(input);
  }

  void AllGatherFlat(const Collective& collective) {
    const at::Tensor input = Flat(collective.input), output = Flat(collective.output);
    const std::vector<int64_t> bounds = BoundsOf(collective, output.numel());
    RequireOwnPart(input, bounds);
    GatherParts(input, output, bounds);
    Release(input);
  }

  void AllToAllFlat(const Collective& collective) {
    const at::Tensor input = Flat(collective.input), output = Flat(collective.output);
    const std::vector<int64_t> bounds = EvenBounds(input.numel(), size());
    ExchangeParts([&](int p) { return Part(input, bounds, p); }, output, bounds);
    Release(input);
  }

  void BroadcastFlat(const Collective& collective) {
    const at::Tensor input = Flat(collective.input), output = Flat(collective.output);
    const at::Tensor token = input.narrow(0, 0, 0);
    if (place() == collective.root) {
      CopyOver(input, output);
      ForEachPeer([&](int p) { Send(p, input); });
      if (!shares_memory_) return Flush();
      ForEachPeer([&](int p) { peers_[p].receive->Post(SpecsOf({token})); });
      ForEachPeer([&](int p) { Await(p); });
      return;
    }
    PostInto(collective.root, output);
    CopyOver(Await(collective.root), output);
    if (shares_memory_) Send(collective.root, token);
  }

  /// Puts this rank's part of the reduction into `result`, which may be that part of `tensor`.
  void ReducePart(const at::Tensor& tensor, const std::vector<int64_t>& bounds, ReduceOp op,
                  at::Tensor& result) {
    const at::Tensor mine = Part(tensor, bounds, place());
    Tensors pieces =
        Exchange([&](int p) { return Part(tensor, bounds, p); }, [&](int) { return mine.numel(); });
    const bool is_overwritten = place() >= 2 && result.data_ptr() == mine.data_ptr();
    pieces[place()] = is_overwritten ? mine.clone() : mine;
    ReduceInto(result, pieces, op);
  }

  /// Fills `whole` with the parts of all ranks; `mine` is this rank's part.
  void GatherParts(const at::Tensor& mine, const at::Tensor& whole,
                   const std::vector<int64_t>& bounds) {
    ExchangeParts([&](int) { return mine; }, whole, bounds);
  }

  static void CopyOver(const at::Tensor& from, const at::Tensor& to) {
    if (from.data_ptr() != to.data_ptr()) Flat(to).copy_(Flat(from));
  }

  std::vector<int64_t> BoundsOf(const Collective& collective, int64_t elements) const {
    return collective.bounds.empty() ? EvenBounds(elements, size()) : collective.bounds;
  }

  void RequireOwnPart(const at::Tensor& part, const std::vector<int64_t>& bounds) const {
    const int64_t expected = bounds[place() + 1] - bounds[place()];
    STRATA_CHECK(part.numel() == expected) << part.numel() << " elements, " << expected;
  }

  /// Sends outgoing(p) to every other place p. Returns what they sent, by place; this rank's own
  /// entry stays undefined. The tensors are flat and of one dtype; place p sends incoming(p)
  /// elements.
  template <class Outgoing, class Incoming>
  Tensors Exchange(const Outgoing& outgoing, const Incoming& incoming) {
    if (size() == 1) return Tensors(1);
    ForEachPeer([&](int p) {
      const DType dtype = SpecOf(outgoing(p)).dtype;
      peers_[p].receive->Post({{{incoming(p)}, dtype}});
    });
    ForEachPeer([&](int p) { Send(p, outgoing(p)); });
    Tensors pieces(size());
    for (int p = 0; p < size(); ++p) {
      if (p != place()) pieces[p] = Await(p);
    }
    return pieces;
  }

  /// Sends outgoing(p) to every other place p. Part p of `whole` becomes what place p sends here;
  /// this rank's part becomes outgoing(place()).
  template <class Outgoing>
  void ExchangeParts(const Outgoing& outgoing, const at::Tensor& whole,
                     const std::vector<int64_t>& bounds) {
    ForEachPeer([&](int p) { PostInto(p, Part(whole, bounds, p)); });
    ForEachPeer([&](int p) { Send(p, outgoing(p)); });
    CopyOver(outgoing(place()), Part(whole, bounds, place()));
    ForEachPeer([&](int p) { CopyOver(Await(p), Part(whole, bounds, p)); });
  }

  /// Waits until the other ranks have read what this rank sent them from `tensor`.
  void Release(const at::Tensor& tensor) {
    Flush();
    if (!shares_memory_) return;
    // The answer "read" is an empty tensor. On an accelerator the message also carries the point of
    // the reader's stream, so that this rank's stream waits until the reading is done.
    const at::Tensor token = tensor.narrow(0, 0, 0);
    Exchange([&](int) { return token; }, [](int) { return 0; });
  }

  void PostInto(int p, const at::Tensor& where) {
    peers_[p].receive->PostInto(SpecOf(where), where);
  }

  /// Sends to place p. May wait while many earlier messages to that place are still under way.
  void Send(int p, const at::Tensor& tensor) {
    awaited_ = spec().ranks[p];
    peers_[p].send->Send({tensor});
    awaited_ = -1;
  }

  void Flush() {
    ForEachPeer([&](int p) {
      awaited_ = spec().ranks[p];
      peers_[p].send->Flush();
    });
    awaited_ = -1;
  }

  at::Tensor Await(int p) {
    awaited_ = spec().ranks[p];
    at::Tensor tensor = std::move(peers_[p].receive->Wait()[0]);
    awaited_ = -1;
    return tensor;
  }

  /// Calls function(p) for every other place p. Each rank begins with the place after its own, so
  /// that the ranks do not all send to the same place at once.
  template <class Function>
  void ForEachPeer(const Function& function) {
    for (int i = 1; i < size(); ++i) function((place() + i) % size());
  }

  const int memory_account_;
  const bool shares_memory_;
  std::vector<Peer> peers_;         // by place
  std::unique_ptr<Worker> worker_;  // null until the first Start()
};

}  // namespace

void AddGroupLinks(const std::vector<GroupSpec>& groups, std::vector<LinkSpec>& links) {
  for (size_t i = 0; i < groups.size(); ++i) {
    for (const int from : groups[i].ranks) {
      for (const int to : groups[i].ranks) {
        if (from != to) links.push_back({from, to, ChannelOf(i)});
      }
    }
  }
}

std::vector<LinkSpec> WiredGroupLinks(const std::vector<GroupSpec>& groups, int rank) {
  std::vector<LinkSpec> links;
  for (size_t i = 0; i < groups.size(); ++i) {
    const std::vector<int>& ranks = groups[i].ranks;
    if (std::ranges::find(ranks, rank) == ranks.end()) continue;
    const bool all_meet = ranks.size() <= kWiredGroup;
    for (const int peer : ranks) {
      const bool is_used = all_meet || rank == ranks[0] || peer == ranks[0];
      if (is_used && peer != rank) links.push_back({rank, peer, ChannelOf(i)});
    }
  }
  return links;
}

std::vector<std::unique_ptr<Group>> OpenLinkGroups(Transport& transport,
                                                   const std::vector<GroupSpec>& specs,
                                                   SharesMemory shares_memory) {
  std::vector<std::unique_ptr<Group>> groups;
  for (size_t i = 0; i < specs.size(); ++i) {
    if (std::ranges::find(specs[i].ranks, transport.rank()) == specs[i].ranks.end()) continue;
    groups.push_back(std::make_unique<LinkGroup>(transport, specs[i], ChannelOf(i), shares_memory));
  }
  return groups;
}

Group* FindByName(const std::vector<std::unique_ptr<Group>>& groups, const std::string& name) {
  const auto found =
      std::ranges::find(groups, name, [](const auto& group) { return group->spec().name; });
  return found == groups.end() ? nullptr : found->get();
}

}  // namespace strata
