#include "engine/comm/transports/nccl.h"

#include <ATen/cuda/CUDAEvent.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <nccl.h>

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
#include "engine/comm/transports/gloo.h"
#include "engine/tensors/dtype.h"

namespace strata {
namespace {

void RequireNccl(ncclResult_t result, const std::string& what) {
  if (result == ncclSuccess) return;
  const std::string text =
      Str(what, ": NCCL: ", ncclGetErrorString(result), " (", ncclGetLastError(nullptr), ")");
  if (result == ncclRemoteError) throw PeerError(text);  // the peer's process or the network ended
  throw WorldError(text);
}

/// The communicator of one link, with its stream.
class Channel {
 public:
  Channel(const LinkSpec& link, int rank, const ncclUniqueId& id, at::DeviceIndex device)
      : name_(Str("the link from rank ", link.from, " to rank ", link.to)),
        stream_(at::cuda::getStreamFromPool(/*isHighPriority=*/true, device)) {
    const bool to_itself = link.from == link.to;
    const int my_place = rank == link.from ? 0 : 1;
    peer_ = to_itself ? 0 : 1 - my_place;
    RequireNccl(ncclCommInitRank(&comm_, to_itself ? 1 : 2, id, my_place), Str("opening ", name_));
  }
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;
  ~Channel() {
    if (comm_ != nullptr) ncclCommAbort(comm_);
  }

  void Send(const at::Tensor& tensor) {
    at::cuda::CUDAEvent ready;
    ready.record(at::cuda::getCurrentCUDAStream(stream_.device_index()));
    ready.block(stream_);
    // The allocator must not reuse the memory before the link's stream has read it.
    tensor.record_stream(stream_);
    RequireNccl(ncclSend(tensor.data_ptr(), tensor.nbytes(), ncclUint8, peer_, comm_, stream_),
                Str("sending over ", name_));
  }
  void Recv(const at::Tensor& tensor) {
    RequireNccl(ncclRecv(tensor.data_ptr(), tensor.nbytes(), ncclUint8, peer_, comm_, stream_),
                Str("receiving over ", name_));
  }
  /// On a link from a rank to itself, the send and the receive must be in one NCCL group; otherwise
  /// each would wait for the other.
  void StartGroup() { RequireNccl(ncclGroupStart(), name_); }
  void EndGroup() { RequireNccl(ncclGroupEnd(), name_); }

  const at::cuda::CUDAStream& stream() const { return stream_; }
  /// From any thread.
  void Abort() { ncclCommAbort(std::exchange(comm_, nullptr)); }

 private:
  std::string name_;
  at::cuda::CUDAStream stream_;
  int peer_ = 0;
  ncclComm_t comm_ = nullptr;
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
    const c10::cuda::CUDAStreamGuard guard(channel_.stream());
    Message& message = posted_.emplace_back();
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
    const auto current = at::cuda::getCurrentCUDAStream(channel_.stream().device_index());
    message.arrived.block(current);
    for (const at::Tensor& tensor : message.tensors) tensor.record_stream(current);
    return std::move(message.tensors);
  }

 private:
  struct Message {
    std::vector<at::Tensor> tensors;
    at::cuda::CUDAEvent arrived;
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
    at::cuda::CUDAEvent arrived;
    arrived.record(channel_.stream());
    arrived.block(at::cuda::getCurrentCUDAStream(channel_.stream().device_index()));
    return received;
  }
  Channel& channel_;
  std::deque<std::vector<at::Tensor>> sent_;
};

ncclDataType_t TypeOf(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return ncclFloat32;
    case at::kDouble:
      return ncclFloat64;
    case at::kHalf:
      return ncclFloat16;
    case at::kBFloat16:
      return ncclBfloat16;
    case at::kLong:
      return ncclInt64;
    case at::kInt:
      return ncclInt32;
    case at::kChar:
      return ncclInt8;
    case at::kByte:
    case at::kBool:
      return ncclUint8;
    default:
      throw ConfigError(Str("NCCL has no type ", at::toString(tensor.scalar_type())));
  }
}

ncclRedOp_t OpOf(ReduceOp op) {
  constexpr ncclRedOp_t kOps[] = {ncclSum, ncclAvg, ncclMin, ncclMax, ncclProd};
  return kOps[static_cast<int>(op)];
}

/// A collective in its group's stream.
class NcclPending : public Pending {
 public:
  NcclPending(Collective collective, at::cuda::CUDAEvent done)
      : collective_(std::move(collective)), done_(std::move(done)) {}
  bool Wait(double seconds) override {
    if (std::isfinite(seconds) && !Arrives(seconds)) return false;
    const bool on_host = collective_.kind == Collective::Kind::kBarrier;
    if (on_host) {
      done_.synchronize();
    } else {
      done_.block(at::cuda::getCurrentCUDAStream(done_.device_index()));
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
  at::cuda::CUDAEvent done_;
};

/// A group: one communicator with its stream. With a log, the host waits for every call to time it.
class NcclGroup : public Group {
 public:
  NcclGroup(const GroupSpec& spec, int rank, const ncclUniqueId& id, at::DeviceIndex device)
      : Group(spec, rank),
        name_(Str("the group ", spec.name, " of ranks ", Join(spec.ranks, ", "))),
        stream_(at::cuda::getStreamFromPool(/*isHighPriority=*/true, device)) {
    RequireNccl(ncclCommInitRank(&comm_, size(), id, place()), Str("opening ", name_));
  }
  ~NcclGroup() override {
    if (comm_ != nullptr) ncclCommAbort(comm_);
  }

  std::shared_ptr<Pending> Start(Collective collective) override {
    CheckCollective(collective, size());
    if (collective.kind == Kind::kBarrier) {
      collective.input = collective.output =
          at::empty({1}, at::TensorOptions(at::kByte).device(stream_.device()));
    }
    const auto start = std::chrono::steady_clock::now();
    at::cuda::CUDAEvent ready;
    ready.record(at::cuda::getCurrentCUDAStream(stream_.device_index()));
    ready.block(stream_);
    collective.input.record_stream(stream_);
    collective.output.record_stream(stream_);
    Launch(collective);
    at::cuda::CUDAEvent done;
    done.record(stream_);
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
  void Abort() { ncclCommAbort(std::exchange(comm_, nullptr)); }

 private:
  using Kind = Collective::Kind;

  void Launch(const Collective& c) {
    const void* input = c.input.const_data_ptr();
    void* output = c.output.data_ptr();
    const auto count = static_cast<size_t>(c.input.numel());
    const ncclDataType_t type = TypeOf(c.input);
    switch (c.kind) {
      case Kind::kBarrier:
      case Kind::kAllReduce:
        return Require(ncclAllReduce(input, output, count, type, OpOf(c.op), comm_, stream_), c);
      case Kind::kBroadcast:
        return Require(ncclBroadcast(input, output, count, type, c.root, comm_, stream_), c);
      case Kind::kAllGather:
        return EachPart(c, c.output, [&](int p, int64_t begin, size_t part) {
          return ncclBroadcast(input, At(c.output, begin), part, type, p, comm_, stream_);
        });
      case Kind::kReduceScatter:
        return EachPart(c, c.input, [&](int p, int64_t begin, size_t part) {
          return ncclReduce(At(c.input, begin), output, part, type, OpOf(c.op), p, comm_, stream_);
        });
      case Kind::kAllToAll:
        EachPart(c, c.input, [&](int p, int64_t begin, size_t part) {
          const ncclResult_t sent = ncclSend(At(c.input, begin), part, type, p, comm_, stream_);
          return sent != ncclSuccess ? sent
                                     : ncclRecv(At(c.output, begin), part, type, p, comm_, stream_);
        });
        return;
      case Kind::kSend:
        return Require(ncclSend(input, count, type, c.root, comm_, stream_), c);
      case Kind::kRecv:
        return Require(ncclRecv(output, count, type, c.root, comm_, stream_), c);
    }
  }

  /// Makes one NCCL call for each part of `whole`, all in one NCCL group.
  template <class Call>
  void EachPart(const Collective& c, const at::Tensor& whole, const Call& call) {
    const auto bounds = c.bounds.empty() ? EvenBounds(whole.numel(), size()) : c.bounds;
    Require(ncclGroupStart(), c);
    ncclResult_t result = ncclSuccess;
    for (int p = 0; p < size() && result == ncclSuccess; ++p) {
      result = call(p, bounds[p], static_cast<size_t>(bounds[p + 1] - bounds[p]));
    }
    const ncclResult_t ended = ncclGroupEnd();
    Require(result != ncclSuccess ? result : ended, c);
  }

  static void* At(const at::Tensor& tensor, int64_t element) {
    return static_cast<std::byte*>(tensor.data_ptr()) + element * tensor.element_size();
  }

  void Require(ncclResult_t result, const Collective& c) const {
    RequireNccl(result, Str(CollectiveName(c.kind), " in ", name_));
  }

  std::string name_;
  at::cuda::CUDAStream stream_;
  ncclComm_t comm_ = nullptr;
};

at::DeviceIndex TakeDevice(const RankPlace& place) {
  const int devices = c10::cuda::device_count();
  if (place.local_rank >= devices) {
    throw WorldError(
        Str("rank ", place.rank, " needs GPU ", place.local_rank, ", this machine has ", devices));
  }
  const auto device = static_cast<at::DeviceIndex>(place.local_rank);
  c10::cuda::set_device(device);
  return device;
}

class NcclTransport : public Transport {
 public:
  NcclTransport(const RankPlace& place, const std::vector<LinkSpec>& links,
                const std::vector<GroupSpec>& groups, const std::vector<GroupSpec>& host_groups,
                double timeout)
      : device_(TakeDevice(place)), control_(MakeGlooTransport(place, {}, host_groups, timeout)) {
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
  ncclUniqueId NewCommunicator(int root) {
    ncclUniqueId id{};
    if (rank() == root) RequireNccl(ncclGetUniqueId(&id), "a new communicator");
    control_->Broadcast(std::string(id.internal, sizeof(id)), root).copy(id.internal, sizeof(id));
    return id;
  }

  void Open(const GroupSpec& group) {
    const ncclUniqueId id = NewCommunicator(group.ranks.front());
    if (std::ranges::find(group.ranks, rank()) == group.ranks.end()) return;
    groups_.push_back(std::make_unique<NcclGroup>(group, rank(), id, device_));
  }

  void Open(const LinkSpec& link) {
    const ncclUniqueId id = NewCommunicator(link.from);
    if (rank() != link.from && rank() != link.to) return;
    Channel& channel =
        *channels_.emplace_back(std::make_unique<Channel>(link, rank(), id, device_));
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

  at::DeviceIndex device_;
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

std::unique_ptr<Transport> MakeNcclTransport(const RankPlace& place,
                                             const std::vector<LinkSpec>& links,
                                             const std::vector<GroupSpec>& groups,
                                             const std::vector<GroupSpec>& host_groups,
                                             double timeout) {
  try {
    return std::make_unique<NcclTransport>(place, links, groups, host_groups, timeout);
  } catch (const c10::Error& error) {
    throw WorldError(Str("rank ", place.rank, ": CUDA: ", error.what_without_backtrace()));
  }
}

}  // namespace strata
