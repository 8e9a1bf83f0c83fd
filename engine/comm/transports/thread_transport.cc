// Each rank waits in a mailbox of its own. A sender appends its message to a queue of the receiver,
// under the lock of the receiver's mailbox, and wakes the receiver. A collective of control data
// collects the contributions of all ranks in one shared object; the last rank completes it and
// wakes all.
#include "engine/comm/transports/thread_transport.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <iterator>
#include <map>
#include <mutex>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/fields/tensor_spec.h"
#include "engine/base/text.h"
#include "engine/comm/link_group.h"
#include "engine/comm/specs.h"
#include "engine/comm/stream_point.h"
#include "engine/comm/transports/patience.h"

namespace strata {
namespace {

using Tensors = std::vector<at::Tensor>;

/// The one object in which the threads of a rank wait: its own thread and those of its groups. Its
/// mutex guards all state that they wait for. A thread that changes such state, or aborts the rank,
/// does so by Change(), which wakes them.
class Mailbox {
 public:
  explicit Mailbox(Patience patience) : patience_(patience) {}

  /// Returns once ready() is true. ready() is called under the lock, so it may also take what it
  /// waited for (a message from a queue). Throws WorldError if the rank is aborted.
  template <class Ready>
  void WaitUntil(const Ready& ready) {
    std::unique_lock lock(mutex_);
    while (!aborted_ && !ready()) {
      const uint64_t seen = version_.load(std::memory_order_relaxed);
      const int core = core_;
      lock.unlock();
      patience_.Poll(core, [&] { return version_.load(std::memory_order_acquire) != seen; });
      lock.lock();
      changed_.wait(lock, [&] { return version_.load(std::memory_order_relaxed) != seen; });
    }
    if (aborted_) throw WorldError(why_);
  }

  /// Runs `change` under the lock and wakes the rank.
  template <class Function>
  void Change(const Function& change) {
    {
      std::lock_guard lock(mutex_);
      change();
      core_ = Patience::ThisCore();
      version_.fetch_add(1, std::memory_order_release);
    }
    changed_.notify_all();  // several threads may wait: the rank's own and those of its groups
  }

  void Abort(const std::string& why) {
    Change([&] {
      if (!aborted_) why_ = why;
      aborted_ = true;
    });
  }

 private:
  const Patience patience_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<uint64_t> version_ = 0;
  int core_ = -1;  // the core of the thread that made the last change
  bool aborted_ = false;
  std::string why_;
};

/// A message under way. On an accelerator its tensors may be read after the point `written_` of the
/// sender's stream.
class Message {
 public:
  Message() = default;
  explicit Message(const Tensors& tensors)
      : tensors_(tensors), device_(DeviceOf(tensors)), written_(device_) {}

  /// Returns the tensors for use on the calling thread's current stream and current device. Tensors
  /// of a sender on another device are copied to this device.
  Tensors Take() {
    if (device_.is_cpu()) return std::move(tensors_);
    written_.Block();
    const c10::impl::VirtualGuardImpl guard(device_.type());
    const c10::Device own = guard.getDevice();
    for (at::Tensor& tensor : tensors_) {
      if (tensor.device().is_cpu()) continue;
      guard.recordDataPtrOnStream(tensor.storage().data_ptr(), guard.getStream(device_));
      if (tensor.device() != own) {
        tensor = tensor.to(own, tensor.scalar_type(), /*non_blocking=*/true);
      }
    }
    return std::move(tensors_);
  }

 private:
  static c10::Device DeviceOf(const Tensors& tensors) {
    const auto on_accelerator = std::ranges::find_if(
        tensors, [](const at::Tensor& tensor) { return !tensor.device().is_cpu(); });
    return on_accelerator == tensors.end() ? c10::Device(c10::kCPU) : on_accelerator->device();
  }

  Tensors tensors_;
  c10::Device device_ = c10::kCPU;
  StreamPoint written_;
};

/// The queue of one link. The mutex of the receiver's mailbox guards it.
struct Pipe {
  LinkSpec spec;
  Mailbox* receiver = nullptr;
  std::deque<Message> queue;
};

class ThreadSendLink : public SendLink {
 public:
  explicit ThreadSendLink(Pipe& pipe) : pipe_(pipe) {}
  void Send(const Tensors& tensors) override {
    Message message(tensors);
    pipe_.receiver->Change([&] { pipe_.queue.push_back(std::move(message)); });
  }
  void Flush() override {}  // a sent message is already in the receiver's queue

 private:
  Pipe& pipe_;
};

class ThreadRecvLink : public RecvLink {
 public:
  explicit ThreadRecvLink(Pipe& pipe) : pipe_(pipe) {}
  void Post(const TensorSpecs& specs) override { posted_.push_back(specs); }
  Tensors Wait() override {
    STRATA_CHECK(!posted_.empty()) << "nothing was posted on the link from " << pipe_.spec.from;
    Message message;
    pipe_.receiver->WaitUntil([&] {
      if (pipe_.queue.empty()) return false;
      message = std::move(pipe_.queue.front());
      pipe_.queue.pop_front();
      return true;
    });
    Tensors tensors = message.Take();
    // Messages of the engine always fit. Those of a script may not (strata.comm).
    if (!Fits(tensors, posted_.front())) {
      throw WorldError(Str("rank ", pipe_.spec.from, " sent ", ToString(SpecsOf(tensors)),
                           " where rank ", pipe_.spec.to, " expected ", ToString(posted_.front())));
    }
    posted_.pop_front();
    return tensors;
  }

 private:
  Pipe& pipe_;
  std::deque<TensorSpecs> posted_;
};

/// The part of one rank in a collective of control data.
struct Contribution {
  const char* collective = "";
  std::vector<double> numbers;
  std::string text;
};

/// One collective of control data. Its contributions do not change once it is complete, so slow
/// ranks may still read them while fast ones are already in the next round.
struct Round {
  std::vector<Contribution> contributions;
  int arrived = 0;  // guarded by Hub::mutex_
  std::atomic<bool> complete = false;
};

/// The state that all ranks share: mailboxes, pipes, collectives of control data, and statuses.
class Hub {
 public:
  Hub(int world_size, const std::vector<LinkSpec>& links) : statuses_(world_size) {
    for (int rank = 0; rank < world_size; ++rank) {
      mailboxes_.push_back(std::make_unique<Mailbox>(Patience::Of(world_size)));
    }
    for (const LinkSpec& link : links) {
      pipes_.try_emplace(link, Pipe{link, mailboxes_[link.to].get(), {}});
    }
  }

  int world_size() const { return static_cast<int>(mailboxes_.size()); }
  Mailbox& mailbox(int rank) { return *mailboxes_[rank]; }

  Pipe& FindPipe(const LinkSpec& spec) {
    const auto pipe = pipes_.find(spec);
    STRATA_CHECK(pipe != pipes_.end())
        << "no link from " << spec.from << " to " << spec.to << " on channel " << spec.channel;
    return pipe->second;
  }

  /// Adds this rank's contribution to the current collective, waits until all ranks have added
  /// theirs, and returns all of them.
  std::shared_ptr<const Round> Exchange(int rank, Contribution contribution) {
    auto [round, complete] = Arrive(rank, std::move(contribution));
    if (complete) {
      for (const auto& mailbox : mailboxes_) mailbox->Change([] {});
    }
    mailbox(rank).WaitUntil([&] { return round->complete.load(); });
    return round;
  }

  void SetStatus(int rank, const std::string& status) {
    std::lock_guard lock(mutex_);
    statuses_[rank] = status;
  }
  std::vector<std::string> Statuses() {
    std::lock_guard lock(mutex_);
    std::vector<std::string> left;
    std::ranges::copy_if(statuses_, std::back_inserter(left),
                         [](const auto& s) { return s != ""; });
    return left;
  }

 private:
  std::pair<std::shared_ptr<Round>, bool> Arrive(int rank, Contribution contribution) {
    std::lock_guard lock(mutex_);
    if (!round_) {
      round_ = std::make_shared<Round>();
      round_->contributions.resize(mailboxes_.size());
    }
    const std::shared_ptr<Round> round = round_;
    round->contributions[rank] = std::move(contribution);
    if (++round->arrived < world_size()) return {round, false};
    round->complete = true;
    round_ = nullptr;
    return {round, true};
  }

  std::vector<std::unique_ptr<Mailbox>> mailboxes_;
  std::map<LinkSpec, Pipe> pipes_;
  std::mutex mutex_;
  std::shared_ptr<Round> round_;  // the incomplete round; null when there is none
  std::vector<std::string> statuses_;
};

class ThreadTransport : public Transport {
 public:
  ThreadTransport(int rank, std::shared_ptr<Hub> hub, const std::vector<GroupSpec>& groups)
      : rank_(rank), hub_(std::move(hub)) {
    groups_ = OpenLinkGroups(*this, groups, SharesMemory::kYes);
  }
  ~ThreadTransport() override { Abort("the transport was closed"); }

  int rank() const override { return rank_; }
  int world_size() const override { return hub_->world_size(); }
  const char* name() const override { return "threads"; }

  SendLink& send_link(int peer, int channel) override {
    return Open(sends_, {rank_, peer, channel});
  }
  RecvLink& recv_link(int peer, int channel) override {
    return Open(receives_, {peer, rank_, channel});
  }

  Group* FindGroup(const std::string& name) override { return FindByName(groups_, name); }

  std::vector<double> AllReduceSum(const std::vector<double>& values) override {
    const auto round = Exchange({"AllReduceSum", values, ""});
    std::vector<double> sum(values.size());
    for (const Contribution& contribution : round->contributions) {
      STRATA_CHECK(contribution.numbers.size() == sum.size())
          << contribution.numbers.size() << " numbers against " << sum.size();
      std::ranges::transform(sum, contribution.numbers, sum.begin(), std::plus<double>());
    }
    return sum;
  }

  std::string Broadcast(const std::string& text, int root) override {
    return Exchange({"Broadcast", {}, rank_ == root ? text : ""})->contributions[root].text;
  }

  std::vector<std::string> Gather(const std::string& text) override {
    const auto round = Exchange({"Gather", {}, text});
    std::vector<std::string> texts;
    for (const Contribution& contribution : round->contributions) {
      texts.push_back(contribution.text);
    }
    return texts;
  }

  void Barrier() override { Exchange({"Barrier", {}, ""}); }

  void Abort(const std::string& why) override { hub_->mailbox(rank_).Abort(why); }
  void SetStatus(const std::string& status) override { hub_->SetStatus(rank_, status); }
  std::vector<std::string> Statuses() override { return hub_->Statuses(); }

 private:
  template <class Link>
  using Links = std::map<LinkSpec, std::unique_ptr<Link>>;

  template <class Link>
  Link& Open(Links<Link>& links, const LinkSpec& spec) {
    std::unique_ptr<Link>& link = links[spec];
    if (!link) link = std::make_unique<Link>(hub_->FindPipe(spec));
    return *link;
  }

  std::shared_ptr<const Round> Exchange(Contribution contribution) {
    const std::string collective = contribution.collective;
    const auto round = hub_->Exchange(rank_, std::move(contribution));
    for (const Contribution& other : round->contributions) {
      STRATA_CHECK(other.collective == collective)
          << "one rank is in " << other.collective << ", another in " << collective;
    }
    return round;
  }

  const int rank_;
  const std::shared_ptr<Hub> hub_;
  Links<ThreadSendLink> sends_;
  Links<ThreadRecvLink> receives_;
  std::vector<std::unique_ptr<Group>> groups_;  // last: their threads use the members above
};

}  // namespace

std::vector<std::unique_ptr<Transport>> MakeThreadTransports(int world_size,
                                                             const std::vector<LinkSpec>& links,
                                                             const std::vector<GroupSpec>& groups) {
  STRATA_CHECK(world_size > 0) << world_size;
  std::vector<LinkSpec> all_links = links;
  AddGroupLinks(groups, all_links);
  const auto hub = std::make_shared<Hub>(world_size, all_links);
  std::vector<std::unique_ptr<Transport>> transports;
  for (int rank = 0; rank < world_size; ++rank) {
    transports.push_back(std::make_unique<ThreadTransport>(rank, hub, groups));
  }
  return transports;
}

}  // namespace strata
