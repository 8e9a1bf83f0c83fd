#include "engine/comm/cuda/nccl.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/Event.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <deque>
#include <map>
#include <thread>
#include <tuple>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/comm/cuda/message_memory.h"
#include "engine/comm/cuda/nccl_communicator.h"

namespace strata {
namespace {

using Clock = std::chrono::steady_clock;
using Communicators = std::vector<std::shared_ptr<NcclCommunicator>>;

NcclMemory MemoryOf(const at::Tensor& tensor) {
  return {tensor.data_ptr(), static_cast<size_t>(tensor.numel()), tensor.scalar_type()};
}

/// Calls `call` for each item of a list until one does not return kDone. Returns the last result.
template <class List, class Call>
NcclResult ForEach(const List& list, const Call& call) {
  NcclResult result = NcclResult::kDone;
  for (const auto& item : list) {
    if (result == NcclResult::kDone) result = call(item);
  }
  return result;
}

/// One end of a link. `peer` is the other end's place in the communicator of the two ranks.
struct Channel {
  NcclCalls& nccl;
  NcclCommunicator& communicator;
  int peer;

  void Send(const std::vector<at::Tensor>& tensors) const {
    Order(CurrentStream(communicator.device()), communicator.stream());
    for (const at::Tensor& tensor : tensors) {
      MessageMemory::RecordStream(tensor, communicator.stream());
    }
    communicator.Launch("sending over ", [&](NcclComm* comm, const c10::Stream& stream) {
      return ForEach(tensors, [&](const at::Tensor& tensor) {
        return nccl.Send(MemoryOf(tensor), peer, comm, stream);
      });
    });
  }
  void Recv(const std::vector<at::Tensor>& tensors) const {
    communicator.Launch("receiving over ", [&](NcclComm* comm, const c10::Stream& stream) {
      return ForEach(tensors, [&](const at::Tensor& tensor) {
        return nccl.Recv(MemoryOf(tensor), peer, comm, stream);
      });
    });
  }
};

class NcclSendLink : public SendLink {
 public:
  explicit NcclSendLink(Channel channel) : channel_(channel) {}
  void Send(const std::vector<at::Tensor>& tensors) override {
    std::vector<at::Tensor> dense;
    for (const at::Tensor& tensor : tensors) {
      if (tensor.numel() > 0) dense.push_back(tensor.detach().contiguous());
    }
    if (!dense.empty()) channel_.Send(dense);
  }
  // There is nothing to wait for: RecordStream() keeps the memory until the stream has read it.
  void Flush() override {}

 private:
  const Channel channel_;
};

/// A receive is launched by Wait(), not by Post(). A waiting NCCL receive occupies a part of the
/// device, and some work that a device does in order (loading a kernel, freeing memory) has to wait
/// behind it. If the message depends on such work, it never comes. At Wait() the order of the
/// program guarantees that the message comes.
class NcclRecvLink : public RecvLink {
 public:
  explicit NcclRecvLink(Channel channel)
      : channel_(channel),
        memory_(std::make_shared<MessageMemory>(channel.communicator.stream())) {}
  void Post(const TensorSpecs& specs) override { posted_.push_back(specs); }
  std::vector<at::Tensor> Wait() override {
    STRATA_CHECK(!posted_.empty()) << "a receive was not posted";
    const c10::Stream reader = CurrentStream(channel_.communicator.device());
    std::vector<at::Tensor> tensors, awaited;
    for (const TensorSpec& spec : posted_.front()) {
      tensors.push_back(memory_->Take(spec, reader));
      if (tensors.back().numel() > 0) awaited.push_back(tensors.back());
    }
    posted_.pop_front();
    if (awaited.empty()) return tensors;
    channel_.Recv(awaited);
    Order(channel_.communicator.stream(), reader);
    return tensors;
  }

 private:
  const Channel channel_;
  const std::shared_ptr<MessageMemory> memory_;
  std::deque<TensorSpecs> posted_;
};

/// A link from a rank to itself. Send() only keeps the message. Wait() does the send and the
/// receive in one NCCL group, since either alone would wait for the other.
class SelfLink {
 public:
  explicit SelfLink(Channel channel) : sender(*this), receiver(*this), channel_(channel) {}

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
    const auto& [nccl, communicator, peer] = channel_;
    std::vector<std::pair<at::Tensor, at::Tensor>> pairs;
    std::vector<at::Tensor> received;
    for (const at::Tensor& tensor : sent_.front()) {
      received.push_back(at::empty(tensor.sizes(), tensor.options()));
      pairs.emplace_back(tensor.contiguous(), received.back());
    }
    sent_.pop_front();
    const c10::Stream current = CurrentStream(communicator.device());
    Order(current, communicator.stream());
    communicator.Launch("exchanging over ", [&](NcclComm* comm, const c10::Stream& stream) {
      return ForEach(pairs, [&](const auto& pair) {
        const NcclResult sent = channel_.nccl.Send(MemoryOf(pair.first), 0, comm, stream);
        if (sent != NcclResult::kDone) return sent;
        return channel_.nccl.Recv(MemoryOf(pair.second), 0, comm, stream);
      });
    });
    Order(communicator.stream(), current);
    return received;
  }
  const Channel channel_;
  std::deque<std::vector<at::Tensor>> sent_;
};

/// A collective or message that was launched on its group's stream.
class NcclPending : public Pending {
 public:
  NcclPending(Collective collective, std::shared_ptr<NcclCommunicator> communicator)
      : collective_(std::move(collective)),
        communicator_(std::move(communicator)),
        done_(communicator_->device().type()) {
    done_.record(communicator_->stream());
  }
  bool Wait(double seconds) override {
    communicator_->Check();
    const bool on_host = collective_.kind == Collective::Kind::kBarrier;
    if ((on_host || std::isfinite(seconds)) && !Arrives(seconds)) return false;
    done_.block(CurrentStream(communicator_->device()));
    return true;
  }
  bool done() const override { return done_.query(); }

  /// Waits on the host by polling, so that an abort ends the wait. Returns false when `seconds` are
  /// over. An aborted call counts as done on the device, so Check() is called to throw.
  bool Arrives(double seconds) const {
    const auto start = Clock::now();
    for (bool is_done = false; !is_done;) {
      is_done = done_.query();
      communicator_->Check();
      if (is_done) break;
      if (std::chrono::duration<double>(Clock::now() - start).count() > seconds) return false;
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    return true;
  }

 private:
  Collective collective_;  // keeps the memory alive until the call is done
  const std::shared_ptr<NcclCommunicator> communicator_;
  c10::Event done_;
};

/// A group: one communicator with its stream. With a log, Start() waits on the host until the call
/// is done, to time it.
class NcclGroup : public Group {
 public:
  NcclGroup(NcclCalls& nccl, const GroupSpec& spec, int rank,
            std::shared_ptr<NcclCommunicator> communicator)
      : Group(spec, rank), nccl_(nccl), communicator_(std::move(communicator)) {}

  std::shared_ptr<Pending> Start(Collective collective) override {
    CheckCollective(collective, size());
    if (collective.kind == Kind::kBarrier) {
      collective.input = collective.output =
          at::zeros({1}, at::TensorOptions(at::kByte).device(communicator_->device()));
    }
    const auto start = Clock::now();
    Order(CurrentStream(communicator_->device()), communicator_->stream());
    MessageMemory::RecordStream(collective.input, communicator_->stream());
    MessageMemory::RecordStream(collective.output, communicator_->stream());
    const std::string doing = Str(CollectiveName(collective.kind), " in ");
    communicator_->Launch(doing.c_str(), [&](NcclComm* comm, const c10::Stream& stream) {
      return Call(collective, comm, stream);
    });
    const size_t bytes = std::max(collective.input.nbytes(), collective.output.nbytes());
    const Kind kind = collective.kind;
    auto pending = std::make_shared<NcclPending>(std::move(collective), communicator_);
    if (log_) {
      pending->Arrives(std::numeric_limits<double>::infinity());
      const std::chrono::duration<double> took = Clock::now() - start;
      log_->Add(CollectiveName(kind), spec().name, size(), static_cast<int64_t>(bytes),
                took.count());
    }
    return pending;
  }
  void Run(Collective collective) override { Start(std::move(collective))->Wait(); }

 private:
  using Kind = Collective::Kind;

  NcclResult Call(const Collective& c, NcclComm* comm, const c10::Stream& stream) {
    const NcclMemory input = MemoryOf(c.input), output = MemoryOf(c.output);
    switch (c.kind) {
      case Kind::kBarrier:
      case Kind::kAllReduce:
        return nccl_.AllReduce(input, output.begin, c.op, comm, stream);
      case Kind::kBroadcast:
        return nccl_.Broadcast(input, output.begin, c.root, comm, stream);
      case Kind::kAllGather:
        return EachPart(c, c.output, [&](int p, const Range& part) {
          // Place p sends its input; the other places receive it in part p of their output.
          const NcclMemory from = p == place() ? input : Part(c.output, part);
          return nccl_.Broadcast(from, Part(c.output, part).begin, p, comm, stream);
        });
      case Kind::kReduceScatter:
        return EachPart(c, c.input, [&](int p, const Range& part) {
          return nccl_.Reduce(Part(c.input, part), output.begin, c.op, p, comm, stream);
        });
      case Kind::kAllToAll:
        return EachPart(c, c.input, [&](int p, const Range& part) {
          const NcclResult sent = nccl_.Send(Part(c.input, part), p, comm, stream);
          if (sent != NcclResult::kDone) return sent;
          return nccl_.Recv(Part(c.output, part), p, comm, stream);
        });
      case Kind::kSend:
        return nccl_.Send(input, c.root, comm, stream);
      case Kind::kRecv:
        return nccl_.Recv(output, c.root, comm, stream);
    }
    return NcclResult::kFailed;
  }

  /// A part of a tensor: the place that it belongs to, and its elements [begin, end).
  struct Range {
    int place;
    int64_t begin, end;
  };

  /// Makes one call for each part of `whole`, as c.bounds cut it (equal parts if they are empty).
  template <class OfPart>
  NcclResult EachPart(const Collective& c, const at::Tensor& whole, const OfPart& call) {
    const auto bounds = c.bounds.empty() ? EvenBounds(whole.numel(), size()) : c.bounds;
    std::vector<Range> parts;
    for (int p = 0; p < size(); ++p) parts.push_back({p, bounds[p], bounds[p + 1]});
    return ForEach(parts, [&](const Range& part) { return call(part.place, part); });
  }

  static NcclMemory Part(const at::Tensor& tensor, const Range& part) {
    auto* memory = static_cast<std::byte*>(tensor.data_ptr());
    return {memory + part.begin * static_cast<int64_t>(tensor.element_size()),
            static_cast<size_t>(part.end - part.begin), tensor.scalar_type()};
  }

  NcclCalls& nccl_;
  const std::shared_ptr<NcclCommunicator> communicator_;
};

/// A communicator that the job needs. The list of openings is the same on all ranks.
struct Opening {
  std::string name;
  std::vector<int> ranks;  // by place
  std::string id = "";     // NCCL's unique id, made by the first of the ranks
};

int PlaceIn(const Opening& opening, int rank) {
  const auto found = std::ranges::find(opening.ranks, rank);
  return found == opening.ranks.end() ? -1 : static_cast<int>(found - opening.ranks.begin());
}

class NcclTransport : public Transport {
 public:
  NcclTransport(NcclCalls& nccl, c10::Device device, std::unique_ptr<Transport> control,
                const std::vector<LinkSpec>& links, const std::vector<GroupSpec>& groups,
                double timeout)
      : nccl_(nccl), streams_(device), control_(std::move(control)) {
    std::vector<Opening> openings;
    for (const LinkSpec& link : links) {
      Opening& opening = openings.emplace_back();
      opening.name = Str("the link from rank ", link.from, " to rank ", link.to);
      opening.ranks = {link.from};
      if (link.to != link.from) opening.ranks.push_back(link.to);
    }
    for (const GroupSpec& group : groups) {
      openings.push_back(
          {Str("the group ", group.name, " of ranks ", Join(group.ranks, ", ")), group.ranks});
    }
    OpenAll(openings, timeout);
    for (size_t i = 0; i < links.size(); ++i) {
      if (communicators_[i]) AddLink(links[i], *communicators_[i]);
    }
    for (size_t i = 0; i < groups.size(); ++i) {
      const auto& communicator = communicators_[links.size() + i];
      if (!communicator) continue;
      groups_.push_back(std::make_unique<NcclGroup>(nccl, groups[i], rank(), communicator));
    }
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
    for (const auto& communicator : communicators_) {
      if (communicator) communicator->Abort(why);
    }
  }
  void AbortIfBroken() override {
    for (const auto& communicator : communicators_) {
      const std::string failure = communicator ? communicator->Failure() : "";
      if (!failure.empty()) return Abort(failure);
    }
  }
  void SetStatus(const std::string& status) override { control_->SetStatus(status); }
  std::vector<std::string> Statuses() override { return control_->Statuses(); }

 private:
  using Key = std::tuple<int, int, int>;  // from, to, channel

  /// Opens all communicators at once: the ids are exchanged in one Gather(), and NCCL opens the
  /// communicators of one call group side by side. Then the ranks of each communicator connect, in
  /// the same order on all ranks. If they connected at their first message, in the middle of a
  /// step, the host would wait there for the other rank, which may itself wait for a message of
  /// this rank.
  void OpenAll(std::vector<Opening>& openings, double timeout) {
    ShareIds(openings);
    for (const Opening& opening : openings) {
      communicators_.push_back(
          PlaceIn(opening, rank()) < 0
              ? nullptr
              : std::make_shared<NcclCommunicator>(nccl_, opening.name, streams_.Take()));
    }
    const NcclResult result = NcclCallGroup(nccl_).Run([&] {
      for (size_t i = 0; i < openings.size(); ++i) {
        if (!communicators_[i]) continue;
        communicators_[i]->BeginOpening(static_cast<int>(openings[i].ranks.size()), openings[i].id,
                                        PlaceIn(openings[i], rank()), timeout);
      }
      return NcclResult::kDone;
    });
    if (result == NcclResult::kFailed) throw WorldError(Str("NCCL: ", nccl_.Why(nullptr, result)));
    for (const auto& communicator : communicators_) {
      if (communicator) communicator->AwaitOpening();
    }
    for (size_t i = 0; i < openings.size(); ++i) {
      if (communicators_[i]) Connect(openings[i], *communicators_[i]);
    }
  }

  void ShareIds(std::vector<Opening>& openings) {
    std::string own;
    for (const Opening& opening : openings) {
      if (opening.ranks.front() != rank()) continue;
      std::string id;
      if (nccl_.NewId(id) != NcclResult::kDone) {
        throw WorldError(
            Str("a new communicator: NCCL: ", nccl_.Why(nullptr, NcclResult::kFailed)));
      }
      own += Str(id.size(), ":", id);
    }
    const std::vector<std::string> all = control_->Gather(own);
    std::vector<size_t> next(all.size());
    for (Opening& opening : openings) {
      const int root = opening.ranks.front();
      const size_t colon = all[root].find(':', next[root]);
      const size_t size = std::stoul(all[root].substr(next[root], colon - next[root]));
      opening.id = all[root].substr(colon + 1, size);
      next[root] = colon + 1 + size;
    }
  }

  /// Makes NCCL connect the ranks: a link carries one byte, a group sums one byte.
  void Connect(const Opening& opening, NcclCommunicator& communicator) {
    const bool is_link = opening.name.starts_with("the link");
    const int place = PlaceIn(opening, rank());
    communicator.Connect([&](NcclMemory byte, NcclComm* comm, const c10::Stream& stream) {
      if (opening.ranks.size() == 1) return NcclResult::kDone;
      if (!is_link) return nccl_.AllReduce(byte, byte.begin, ReduceOp::kSum, comm, stream);
      return place == 0 ? nccl_.Send(byte, 1, comm, stream) : nccl_.Recv(byte, 0, comm, stream);
    });
  }

  void AddLink(const LinkSpec& link, NcclCommunicator& communicator) {
    const Key key = {link.from, link.to, link.channel};
    const Channel channel = {nccl_, communicator, rank() == link.from ? 1 : 0};
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
  StreamPool streams_;
  const std::unique_ptr<Transport> control_;
  Communicators
      communicators_;  // of the links, then of the groups; null where this rank takes no part
  std::vector<std::unique_ptr<NcclGroup>> groups_;
  std::vector<std::unique_ptr<NcclSendLink>> send_links_;
  std::vector<std::unique_ptr<NcclRecvLink>> recv_links_;
  std::vector<std::unique_ptr<SelfLink>> self_links_;
  std::map<Key, SendLink*> senders_;
  std::map<Key, RecvLink*> receivers_;
};

}  // namespace

std::unique_ptr<Transport> MakeNcclTransport(NcclCalls& nccl, c10::Device device,
                                             std::unique_ptr<Transport> control,
                                             const std::vector<LinkSpec>& links,
                                             const std::vector<GroupSpec>& groups, double timeout) {
  return std::make_unique<NcclTransport>(nccl, device, std::move(control), links, groups, timeout);
}

}  // namespace strata
