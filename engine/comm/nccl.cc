#include "engine/comm/nccl.h"

#include <ATen/cuda/CUDAEvent.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <nccl.h>

#include <deque>
#include <map>
#include <mutex>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/comm/gloo.h"
#include "engine/comm/peer_error.h"
#include "engine/layers/dtype.h"

namespace strata {
namespace {

void RequireNccl(ncclResult_t result, const std::string& what) {
  if (result == ncclSuccess) return;
  const std::string text =
      Str(what, ": NCCL: ", ncclGetErrorString(result), " (", ncclGetLastError(nullptr), ")");
  if (result == ncclRemoteError) throw PeerError(text);  // the other process ended, or the network
  throw WorldError(text);
}

/// One communicator with its stream. `peer` is the other end's rank inside it.
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
    // The allocator must not hand the memory on before the link's stream has read it.
    tensor.record_stream(stream_);
    RequireNccl(ncclSend(tensor.data_ptr(), tensor.nbytes(), ncclUint8, peer_, comm_, stream_),
                Str("sending over ", name_));
  }
  void Recv(const at::Tensor& tensor) {
    RequireNccl(ncclRecv(tensor.data_ptr(), tensor.nbytes(), ncclUint8, peer_, comm_, stream_),
                Str("receiving over ", name_));
  }
  /// To itself both calls must be in one group, or each would wait for the other.
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
  // The stream keeps the memory until it has been read (record_stream); nothing to wait for.
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
      received.push_back(at::empty_like(tensor));
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
  NcclTransport(const RankPlace& place, const std::vector<LinkSpec>& links, double timeout)
      : device_(TakeDevice(place)), control_(MakeGlooTransport(place, timeout)) {
    for (const LinkSpec& link : links) Open(link);
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
  }
  void SetStatus(const std::string& status) override { control_->SetStatus(status); }
  std::vector<std::string> Statuses() override { return control_->Statuses(); }

 private:
  using Key = std::tuple<int, int, int>;  // from, to, channel

  /// Every rank takes part in every opening, so that all go through them in the same order.
  void Open(const LinkSpec& link) {
    ncclUniqueId id{};
    if (rank() == link.from) RequireNccl(ncclGetUniqueId(&id), "a new communicator");
    const std::string bytes = control_->Broadcast(std::string(id.internal, sizeof(id)), link.from);
    if (rank() != link.from && rank() != link.to) return;
    bytes.copy(id.internal, sizeof(id));
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
                                             const std::vector<LinkSpec>& links, double timeout) {
  try {
    return std::make_unique<NcclTransport>(place, links, timeout);
  } catch (const c10::Error& error) {
    throw WorldError(Str("rank ", place.rank, ": CUDA: ", error.what_without_backtrace()));
  }
}

}  // namespace strata
