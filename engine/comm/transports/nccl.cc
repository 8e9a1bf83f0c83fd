#include "engine/comm/transports/nccl.h"

#include <ATen/ops/empty.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <deque>
#include <map>
#include <mutex>
#include <thread>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/comm/peer_error.h"
#include "engine/tensors/dtype.h"

namespace strata {
namespace {

c10::impl::VirtualGuardImpl Devices(c10::Device device) {
  return c10::impl::VirtualGuardImpl(device.type());
}

c10::Stream NewStream(c10::Device device) {
  return Devices(device).getStreamFromGlobalPool(device, /*isHighPriority=*/true);
}

c10::Stream CurrentStream(c10::Device device) { return Devices(device).getStream(device); }

c10::Event EventOf(const c10::Stream& stream) {
  c10::Event event(stream.device_type());
  event.record(stream);
  return event;
}

/// Waits until the communicator has done what it began.
void RequireNccl(NcclCalls& nccl, NcclComm* comm, NcclResult result, const std::string& what) {
  while (result == NcclResult::kUnderWay) {
    std::this_thread::yield();
    result = nccl.State(comm);
  }
  if (result == NcclResult::kDone) return;
  const std::string text = Str(what, ": NCCL: ", nccl.Why(comm, result));
  if (result == NcclResult::kPeerIsGone) throw PeerError(text);
  throw WorldError(text);
}

NcclMemory MemoryOf(const at::Tensor& tensor) {
  return {tensor.data_ptr(), static_cast<size_t>(tensor.numel()), tensor.scalar_type()};
}

/// The communicator of one link, with its stream.
class Channel {
 public:
  Channel(NcclCalls& nccl, const LinkSpec& link, int rank, const std::string& id, c10::Device device)
      : nccl_(nccl),
        name_(Str("the link from rank ", link.from, " to rank ", link.to)),
        stream_(NewStream(device)) {
    const bool to_itself = link.from == link.to;
    const int my_place = rank == link.from ? 0 : 1;
    peer_ = to_itself ? 0 : 1 - my_place;
    Require(nccl_.Open(comm_, to_itself ? 1 : 2, id, my_place), "opening ");
  }
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;
  ~Channel() {
    if (comm_ != nullptr) nccl_.Abort(comm_);
  }

  void Send(const at::Tensor& tensor) {
    EventOf(CurrentStream(stream_.device())).block(stream_);
    // The allocator must not reuse the memory before the link's stream has read it.
    tensor.record_stream(stream_);
    Require(nccl_.Send(MemoryOf(tensor), peer_, comm_, stream_), "sending over ");
  }
  void Recv(const at::Tensor& tensor) {
    Require(nccl_.Recv(MemoryOf(tensor), peer_, comm_, stream_), "receiving over ");
  }
  /// On a link from a rank to itself, the send and the receive must be in one NCCL group; otherwise
  /// each would wait for the other.
  void StartGroup() { Require(nccl_.GroupStart(), ""); }
  void EndGroup() { Require(nccl_.GroupEnd(), ""); }

  const c10::Stream& stream() const { return stream_; }
  /// From any thread.
  void Abort() { nccl_.Abort(std::exchange(comm_, nullptr)); }

 private:
  void Require(NcclResult result, const char* doing) {
    RequireNccl(nccl_, comm_, result, Str(doing, name_));
  }
  NcclCalls& nccl_;
  std::string name_;
  c10::Stream stream_;
  int peer_ = 0;
  NcclComm* comm_ = nullptr;
};

class NcclSendLink : public SendLink {
 public:
  explicit NcclSendLink(Channel& channel) : channel_(channel) {}
  void Send(const std::vector<at::Tensor>& tensors) override {
    for (const at::Tensor& tensor : tensors) {
      if (tensor.numel() > 0) channel_.Send(tensor.detach().contiguous());
    }
  }
  // There is nothing to wait for: record_stream() keeps the memory until the stream has read it.
  void Flush() override {}

 private:
  Channel& channel_;
};

class NcclRecvLink : public RecvLink {
 public:
  explicit NcclRecvLink(Channel& channel) : channel_(channel) {}
  void Post(const TensorSpecs& specs) override {
    const c10::StreamGuard guard(channel_.stream());
    Message& message = posted_.emplace_back(channel_.stream().device_type());
    for (const TensorSpec& spec : specs) {
      at::Tensor tensor =
          at::empty(spec.shape,
                    at::TensorOptions(ToScalarType(spec.dtype)).device(channel_.stream().device()));
      if (tensor.numel() > 0) channel_.Recv(tensor);
      message.tensors.push_back(std::move(tensor));
    }
    message.arrived.record(channel_.stream());
  }
  std::vector<at::Tensor> Wait() override {
    STRATA_CHECK(!posted_.empty()) << "a receive was not posted";
    Message message = std::move(posted_.front());
    posted_.pop_front();
    const c10::Stream current = CurrentStream(channel_.stream().device());
    message.arrived.block(current);
    for (const at::Tensor& tensor : message.tensors) tensor.record_stream(current);
    return std::move(message.tensors);
  }

 private:
  struct Message {
    std::vector<at::Tensor> tensors;
    c10::Event arrived;
    explicit Message(c10::DeviceType type) : arrived(type) {}
  };
  Channel& channel_;
  std::deque<Message> posted_;
};

/// A link from a rank to itself: a message is sent when its receive is posted.
class SelfLink {
 public:
  explicit SelfLink(Channel& channel) : sender(*this), receiver(*this), channel_(channel) {}

  struct Sender : SendLink {
    explicit Sender(SelfLink& link) : link(link) {}
    void Send(const std::vector<at::Tensor>& tensors) override { link.sent_.push_back(tensors); }
    void Flush() override {}
    SelfLink& link;
  } sender;
  struct Receiver : RecvLink {
    explicit Receiver(SelfLink& link) : link(link) {}
    void Post(const TensorSpecs&) override {}
    std::vector<at::Tensor> Wait() override { return link.Exchange(); }
    SelfLink& link;
  } receiver;

 private:
  std::vector<at::Tensor> Exchange() {
    STRATA_CHECK(!sent_.empty()) << "nothing was sent to itself";
    std::vector<at::Tensor> received;
    for (const at::Tensor& tensor : sent_.front()) {
      received.push_back(at::empty(tensor.sizes(), tensor.options()));
      channel_.StartGroup();
      channel_.Send(tensor.contiguous());
      channel_.Recv(received.back());
      channel_.EndGroup();
    }
    sent_.pop_front();
    EventOf(channel_.stream()).block(CurrentStream(channel_.stream().device()));
    return received;
  }
  Channel& channel_;
  std::deque<std::vector<at::Tensor>> sent_;
};

/// A collective in its group's stream.
class NcclPending : public Pending {
 public:
  NcclPending(Collective collective, c10::Event done)
      : collective_(std::move(collective)), done_(std::move(done)) {}
  bool Wait(double seconds) override {
    if (std::isfinite(seconds) && !Arrives(seconds)) return false;
    const bool on_host = collective_.kind == Collective::Kind::kBarrier;
    if (on_host) {
      done_.synchronize();
    } else {
      done_.block(CurrentStream(done_.device()));
    }
    return true;
  }
  bool done() const override { return done_.query(); }

 private:
  bool Arrives(double seconds) const {
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    while (!done_.query()) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    return true;
  }
  Collective collective_;  // its memory must live until it is done
  c10::Event done_;
};

/// A group: one communicator with its stream. With a log, the host waits for every call to time it.
class NcclGroup : public Group {
 public:
  NcclGroup(NcclCalls& nccl, const GroupSpec& spec, int rank, const std::string& id,
            c10::Device device)
      : Group(spec, rank),
        nccl_(nccl),
        name_(Str("the group ", spec.name, " of ranks ", Join(spec.ranks, ", "))),
        stream_(NewStream(device)) {
    RequireNccl(nccl_, comm_, nccl_.Open(comm_, size(), id, place()), Str("opening ", name_));
  }
  ~NcclGroup() override {
    if (comm_ != nullptr) nccl_.Abort(comm_);
  }

  std::shared_ptr<Pending> Start(Collective collective) override {
    CheckCollective(collective, size());
    if (collective.kind == Kind::kBarrier) {
      collective.input = collective.output =
          at::empty({1}, at::TensorOptions(at::kByte).device(stream_.device()));
    }
    const auto start = std::chrono::steady_clock::now();
    EventOf(CurrentStream(stream_.device())).block(stream_);
    collective.input.record_stream(stream_);
    collective.output.record_stream(stream_);
    Launch(collective);
    c10::Event done = EventOf(stream_);
    if (log_) {
      done.synchronize();
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
      const size_t bytes = std::max(collective.input.nbytes(), collective.output.nbytes());
      log_->Add(CollectiveName(collective.kind), spec().name, size(), static_cast<int64_t>(bytes),
                took.count());
    }
    return std::make_shared<NcclPending>(std::move(collective), std::move(done));
  }
  void Run(Collective collective) override { Start(std::move(collective))->Wait(); }

  /// From any thread.
  void Abort() { nccl_.Abort(std::exchange(comm_, nullptr)); }

 private:
  using Kind = Collective::Kind;

  void Launch(const Collective& c) {
    const NcclMemory input = MemoryOf(c.input), output = MemoryOf(c.output);
    switch (c.kind) {
      case Kind::kBarrier:
      case Kind::kAllReduce:
        return Require(nccl_.AllReduce(input, output.begin, c.op, comm_, stream_), c);
      case Kind::kBroadcast:
        return Require(nccl_.Broadcast(input, output.begin, c.root, comm_, stream_), c);
      case Kind::kAllGather:
        return EachPart(c, c.output, [&](int p, const Range& part) {
          // Its own part is its input; it receives those of others where they belong.
          const NcclMemory from = p == place() ? input : Part(c.output, part);
          return nccl_.Broadcast(from, Part(c.output, part).begin, p, comm_, stream_);
        });
      case Kind::kReduceScatter:
        return EachPart(c, c.input, [&](int p, const Range& part) {
          return nccl_.Reduce(Part(c.input, part), output.begin, c.op, p, comm_, stream_);
        });
      case Kind::kAllToAll:
        return EachPart(c, c.input, [&](int p, const Range& part) {
          const NcclResult sent = nccl_.Send(Part(c.input, part), p, comm_, stream_);
          return sent != NcclResult::kDone
                     ? sent
                     : nccl_.Recv(Part(c.output, part), p, comm_, stream_);
        });
      case Kind::kSend:
        return Require(nccl_.Send(input, c.root, comm_, stream_), c);
      case Kind::kRecv:
        return Require(nccl_.Recv(output, c.root, comm_, stream_), c);
    }
  }

  /// Makes one NCCL call for each part of `whole`, all in one NCCL group.
  template <class Call>
  void EachPart(const Collective& c, const at::Tensor& whole, const Call& call) {
    const auto bounds = c.bounds.empty() ? EvenBounds(whole.numel(), size()) : c.bounds;
    Require(nccl_.GroupStart(), c);
    NcclResult result = NcclResult::kDone;
    for (int p = 0; p < size() && result == NcclResult::kDone; ++p) {
      result = call(p, Range{bounds[p], bounds[p + 1]});
    }
    const NcclResult ended = nccl_.GroupEnd();
    Require(result != NcclResult::kDone ? result : ended, c);
  }

  struct Range {
    int64_t begin, end;
  };
  static NcclMemory Part(const at::Tensor& tensor, const Range& part) {
    auto* memory = static_cast<std::byte*>(tensor.data_ptr());
    return {memory + part.begin * static_cast<int64_t>(tensor.element_size()),
            static_cast<size_t>(part.end - part.begin), tensor.scalar_type()};
  }

  void Require(NcclResult result, const Collective& c) const {
    RequireNccl(nccl_, comm_, result, Str(CollectiveName(c.kind), " in ", name_));
  }

  NcclCalls& nccl_;
  std::string name_;
  c10::Stream stream_;
  NcclComm* comm_ = nullptr;
};

class NcclTransport : public Transport {
 public:
  NcclTransport(NcclCalls& nccl, c10::Device device, std::unique_ptr<Transport> control,
                const std::vector<LinkSpec>& links, const std::vector<GroupSpec>& groups)
      : nccl_(nccl), device_(device), control_(std::move(control)) {
    for (const LinkSpec& link : links) Open(link);
    for (const GroupSpec& group : groups) Open(group);
  }
  int rank() const override { return control_->rank(); }
  int world_size() const override { return control_->world_size(); }
  const char* name() const override { return "nccl"; }

  SendLink& send_link(int peer, int channel) override {
    return Find(senders_, {rank(), peer, channel});
  }
  RecvLink& recv_link(int peer, int channel) override {
    return Find(receivers_, {peer, rank(), channel});
  }
  Group* FindGroup(const std::string& name) override {
    const auto found =
        std::ranges::find(groups_, name, [](const auto& group) { return group->spec().name; });
    return found == groups_.end() ? nullptr : found->get();
  }
  Group* FindHostGroup(const std::string& name) override { return control_->FindGroup(name); }
  std::vector<double> AllReduceSum(const std::vector<double>& values) override {
    return control_->AllReduceSum(values);
  }
  std::string Broadcast(const std::string& text, int root) override {
    return control_->Broadcast(text, root);
  }
  std::vector<std::string> Gather(const std::string& text) override {
    return control_->Gather(text);
  }
  void Barrier() override { control_->Barrier(); }

  void Abort(const std::string& why) override {
    control_->Abort(why);
    const std::lock_guard lock(mutex_);
    if (aborted_) return;
    aborted_ = true;
    for (const auto& channel : channels_) channel->Abort();
    for (const auto& group : groups_) group->Abort();
  }
  void SetStatus(const std::string& status) override { control_->SetStatus(status); }
  std::vector<std::string> Statuses() override { return control_->Statuses(); }

 private:
  using Key = std::tuple<int, int, int>;  // from, to, channel

  /// Every rank of the job takes part in every opening, also of communicators that it is not in. So
  /// all ranks open them in the same order.
  std::string NewCommunicator(int root) {
    std::string id;
    if (rank() == root) RequireNccl(nccl_, nullptr, nccl_.NewId(id), "a new communicator");
    return control_->Broadcast(id, root);
  }

  void Open(const GroupSpec& group) {
    const std::string id = NewCommunicator(group.ranks.front());
    if (std::ranges::find(group.ranks, rank()) == group.ranks.end()) return;
    groups_.push_back(std::make_unique<NcclGroup>(nccl_, group, rank(), id, device_));
  }

  void Open(const LinkSpec& link) {
    const std::string id = NewCommunicator(link.from);
    if (rank() != link.from && rank() != link.to) return;
    Channel& channel =
        *channels_.emplace_back(std::make_unique<Channel>(nccl_, link, rank(), id, device_));
    const Key key = {link.from, link.to, link.channel};
    if (link.from == link.to) {
      SelfLink& self = *self_links_.emplace_back(std::make_unique<SelfLink>(channel));
      senders_[key] = &self.sender;
      receivers_[key] = &self.receiver;
    } else if (rank() == link.from) {
      senders_[key] = send_links_.emplace_back(std::make_unique<NcclSendLink>(channel)).get();
    } else {
      receivers_[key] = recv_links_.emplace_back(std::make_unique<NcclRecvLink>(channel)).get();
    }
  }

  template <class Link>
  static Link& Find(const std::map<Key, Link*>& links, const Key& key) {
    const auto found = links.find(key);
    STRATA_CHECK(found != links.end()) << "no link from rank " << std::get<0>(key) << " to rank "
                                       << std::get<1>(key) << " was opened";
    return *found->second;
  }

  NcclCalls& nccl_;
  const c10::Device device_;
  std::unique_ptr<Transport> control_;
  std::vector<std::unique_ptr<Channel>> channels_;
  std::vector<std::unique_ptr<NcclGroup>> groups_;
  std::vector<std::unique_ptr<NcclSendLink>> send_links_;
  std::vector<std::unique_ptr<NcclRecvLink>> recv_links_;
  std::vector<std::unique_ptr<SelfLink>> self_links_;
  std::map<Key, SendLink*> senders_;
  std::map<Key, RecvLink*> receivers_;
  std::mutex mutex_;
  bool aborted_ = false;
};

}  // namespace

std::unique_ptr<Transport> MakeNcclTransport(NcclCalls& nccl, c10::Device device,
                                             std::unique_ptr<Transport> control,
                                             const std::vector<LinkSpec>& links,
                                             const std::vector<GroupSpec>& groups) {
  return std::make_unique<NcclTransport>(nccl, device, std::move(control), links, groups);
}

}  // namespace strata
