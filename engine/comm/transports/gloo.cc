// A tensor takes one of three ways: a small one goes over a wire; a large one is copied by the
// receiver from the sender's memory if it can read it; any other large one goes through c10d's
// Gloo. Both ends choose the same way from the size and from what TryReach() found. Control data
// goes to rank 0 and back: a sum of n ranks takes 2(n-1) messages.
#include "engine/comm/transports/gloo.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/base/outstanding_sends.h"
#include "engine/base/tensors/dtype.h"
#include "engine/base/tensors/layout.h"
#include "engine/base/text.h"
#include "engine/comm/link_group.h"
#include "engine/comm/meeting/address.h"
#include "engine/comm/meeting/rendezvous.h"
#include "engine/comm/peer_error.h"
#include "engine/comm/specs.h"
#include "engine/comm/transports/patience.h"
#include "engine/comm/transports/peer_memory.h"
#include "engine/comm/transports/wires.h"

namespace strata {
namespace {

using WorkPtr = c10::intrusive_ptr<c10d::Work>;

/// The tag of control data in Gloo, and the channel of its wires. Links have other tags. A receive
/// gets only messages of its own tag, in the order in which they were sent.
constexpr int kControlTag = 15;
/// Messages up to this size go over a link's wire, if it has one, and wake no thread of Gloo.
/// Larger ones are read from the sender's memory, or go through Gloo, whose threads move them while
/// the ranks compute. Both ends know the sizes and which end can read the other's memory.
constexpr size_t kSmallBytes = 64 << 10;
/// Added to the channel of a link, it is the channel of the wire on which the receiver confirms
/// what it has read.
constexpr int kReadChannels = 1 << 16;

/// The message for a large tensor that the receiver reads from the sender's memory. The receiver
/// answers with one byte when it has read the tensor.
struct Found {
  uint64_t address = 0;
};

std::chrono::milliseconds Milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

/// The process group, the wires, and the c10d works that threads wait for. Abort() ends their
/// waits. The rank's own thread and the threads of its groups may use a connection at the same
/// time.
class Connection {
 public:
  Connection(const RankPlace& place, const std::vector<LinkSpec>& links,
             const std::vector<GroupSpec>& groups, double timeout)
      : rank_(place.rank), world_size_(place.world_size), timeout_(timeout) {
    const std::string trouble = TorchTrouble([&] {
      Connect(place, timeout);
      const std::set<WireKey> wanted = WantedWires(rank_, world_size_, links, groups);
      OpenWires(place, wanted);
      std::set<WireKey> readers;
      std::ranges::copy_if(wanted, std::inserter(readers, readers.end()),
                           [](const WireKey& key) { return key.second >= kReadChannels; });
      reach_ = TryReach(rank_, *wires_, readers, timeout);
    });
    if (trouble.empty()) return;
    throw PeerError(Str("rank ", place.rank, " could not meet the other ", place.world_size - 1,
                        " ranks at ", place.store_host, ":", place.store_port, ": ", trouble));
  }

  WorkPtr Send(at::Tensor& tensor, int peer, int tag) {
    return Start(
        peer, [&](std::vector<at::Tensor>& list) { return group_->send(list, peer, tag); }, tensor);
  }
  WorkPtr Recv(at::Tensor& tensor, int peer, int tag) {
    return Start(
        peer, [&](std::vector<at::Tensor>& list) { return group_->recv(list, peer, tag); }, tensor);
  }

  /// The wire of the link; null if it has none.
  Wire* FindWire(int peer, int channel) { return wires_->Find(peer, channel); }
  /// Whether each end of the link can read the other's memory; false for both if the link has no
  /// wire.
  Reach ReachOf(int peer, int channel) const {
    const auto found = reach_.find({peer, channel + kReadChannels});
    return found == reach_.end() ? Reach() : found->second;
  }

  /// Sends control data of up to kSmallBytes over the wire. RecvControl() throws PeerError after
  /// the timeout.
  void SendControl(int peer, const void* data, size_t size) {
    FindWire(peer, kControlTag)->Send(data, size);
  }
  void RecvControl(int peer, void* data, size_t size) {
    FindWire(peer, kControlTag)->Receive(data, size, timeout_);
  }

  /// Waits for one c10d work. Throws PeerError when it failed, WorldError when it was aborted.
  void Wait(const WorkPtr& work, int peer) {
    {
      const std::lock_guard lock(mutex_);
      if (aborted_) throw WorldError(why_);
      waiting_.insert(work);
    }
    bool is_whole = true;
    std::string trouble = TorchTrouble([&] { is_whole = work->wait(); });
    if (!is_whole) trouble = "the wait was ended";
    const std::lock_guard lock(mutex_);
    waiting_.erase(work);
    if (aborted_) throw WorldError(why_);
    if (!trouble.empty()) throw PeerError(Lost(peer, trouble));
  }

  /// Keeps this rank's status in the store. After the ranks have met, no rank waits in the store,
  /// so this never blocks for long.
  void SetStatus(const std::string& status) {
    store_->set(StatusKey(rank_), std::vector<uint8_t>(status.begin(), status.end()));
    // The store does not answer set(). The answer to check() shows that the status is stored,
    // before another rank asks for it.
    store_->check({StatusKey(rank_)});
  }
  std::vector<std::string> Statuses() {
    std::vector<std::string> statuses;
    for (int rank = 0; rank < world_size_; ++rank) {
      if (!store_->check({StatusKey(rank)})) continue;
      const std::vector<uint8_t> bytes = store_->get(StatusKey(rank));
      if (!bytes.empty()) statuses.emplace_back(bytes.begin(), bytes.end());
    }
    return statuses;
  }

  void Abort(const std::string& why) {
    const std::lock_guard lock(mutex_);
    if (aborted_) return;
    aborted_ = true;
    why_ = why;
    for (const WorkPtr& work : waiting_) work->abort();
    if (wires_) wires_->Abort(why);
  }

 private:
  void Connect(const RankPlace& place, double timeout) {
    store_ = MeetAtStore(place, timeout);
    const auto options = c10d::ProcessGroupGloo::Options::create(Milliseconds(timeout));
    options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(OwnAddress(place)));
    group_ = c10::make_intrusive<c10d::ProcessGroupGloo>(
        c10::make_intrusive<c10d::PrefixStore>("gloo", store_), place.rank, place.world_size,
        options);
  }

  void OpenWires(const RankPlace& place, const std::set<WireKey>& wanted) {
    const Board board = {.set =
                             [this](const std::string& key, const std::string& text) {
                               store_->set(key, std::vector<uint8_t>(text.begin(), text.end()));
                             },
                         .get =
                             [this](const std::string& key) {
                               const std::vector<uint8_t> bytes = store_->get(key);
                               return std::string(bytes.begin(), bytes.end());
                             }};
    wires_ = Wires::Connect(place, wanted, board, Patience::Of(place.local_world_size), timeout_);
  }

  static std::string StatusKey(int rank) { return Str("status/", rank); }

  template <class Launch>
  WorkPtr Start(int peer, const Launch& launch, at::Tensor& tensor) {
    {
      const std::lock_guard lock(mutex_);
      if (aborted_) throw WorldError(why_);
    }
    std::vector<at::Tensor> list = {tensor};
    const std::lock_guard lock(launch_mutex_);
    WorkPtr work;
    const std::string trouble = TorchTrouble([&] { work = launch(list); });
    if (!trouble.empty()) throw PeerError(Lost(peer, trouble));
    return work;
  }

  std::string Lost(int peer, const std::string& trouble) const {
    return Str("rank ", rank_, " lost the connection to rank ", peer, ": ",
               Split(trouble, '\n').front());
  }

  int rank_, world_size_;
  const double timeout_;
  c10::intrusive_ptr<c10d::Store> store_;  // rank 0 serves it for as long as rank 0 holds it
  c10::intrusive_ptr<c10d::ProcessGroupGloo> group_;
  std::unique_ptr<Wires> wires_;
  std::map<WireKey, Reach> reach_;  // by the wire on which reads are confirmed
  std::mutex launch_mutex_;         // c10d counts launches without a lock of its own
  std::mutex mutex_;
  std::set<WorkPtr> waiting_;
  bool aborted_ = false;
  std::string why_;
};

// A message of a link with a wire has one part for each tensor: its bytes if it is small, else the
// address to read it from (Found), else nothing, when the tensor goes through Gloo. If the strides
// are not the default ones, they follow as an appendix.

bool IsSmall(const at::Tensor& tensor) { return tensor.nbytes() <= kSmallBytes; }
size_t StridesBytes(const at::Tensor& tensor) { return tensor.dim() * sizeof(int64_t); }

class GlooSendLink : public SendLink {
 public:
  GlooSendLink(Connection& connection, int peer, int tag)
      : connection_(connection),
        wire_(connection.FindWire(peer, tag)),
        reads_(connection.ReachOf(peer, tag).reads_ours
                   ? connection.FindWire(peer, tag + kReadChannels)
                   : nullptr),
        peer_(peer),
        tag_(tag) {}
  void Send(const std::vector<at::Tensor>& tensors) override {
    for (const at::Tensor& tensor : tensors) {
      if (tensor.numel() > 0) Send(tensor);
    }
  }
  void Flush() override {
    while (!sent_.empty()) WaitOldest();
  }

 private:
  struct Message {
    WorkPtr work;       // the send through Gloo; null if the peer reads the memory
    at::Tensor tensor;  // kept alive until it has been sent or read
  };
  void Send(const at::Tensor& tensor) {
    if (!wire_) return Start(tensor.detach().contiguous());
    const at::Tensor row = InOneRow(tensor);
    const bool has_strides = !HasDefaultStrides(tensor);
    const Found found = {reinterpret_cast<uint64_t>(row.const_data_ptr())};
    if (IsSmall(row)) {
      wire_->Send(row.const_data_ptr(), row.nbytes(), has_strides);
    } else {
      wire_->Send(&found, reads_ ? sizeof(found) : 0, has_strides);
    }
    if (has_strides) wire_->Send(tensor.strides().data(), StridesBytes(tensor));
    if (IsSmall(row)) return;
    if (!reads_) return Start(row);
    while (!sent_.empty() && reads_->HasCome()) WaitOldest();
    sent_.push_back({nullptr, row});
  }
  void Start(at::Tensor dense) {
    while (sent_.size() >= kOutstandingSends) WaitOldest();
    WorkPtr work = connection_.Send(dense, peer_, tag_);
    sent_.push_back({std::move(work), std::move(dense)});
  }
  void WaitOldest() {
    char has_read = 0;
    if (reads_) {
      reads_->Receive(&has_read, 1);
    } else {
      connection_.Wait(sent_.front().work, peer_);
    }
    sent_.pop_front();
  }
  Connection& connection_;
  Wire* const wire_;
  Wire* const
      reads_;  // on which the peer confirms its reads; null = it cannot read this rank's memory
  int peer_, tag_;
  std::deque<Message> sent_;
};

class GlooRecvLink : public RecvLink {
 public:
  GlooRecvLink(Connection& connection, int peer, int tag)
      : connection_(connection),
        wire_(connection.FindWire(peer, tag)),
        reads_(connection.FindWire(peer, tag + kReadChannels)),
        memory_(connection.ReachOf(peer, tag).theirs),
        peer_(peer),
        tag_(tag) {}
  void Post(const TensorSpecs& specs) override {
    std::vector<Expected>& message = posted_.emplace_back();
    for (at::Tensor& tensor : EmptyTensors(specs, at::kCPU)) message.push_back(Expect(tensor));
  }
  void PostInto(const TensorSpec&, const at::Tensor& where) override {
    posted_.push_back({Expect(where)});
  }
  std::vector<at::Tensor> Wait() override {
    STRATA_CHECK(!posted_.empty()) << "a receive from rank " << peer_ << " was not posted";
    std::vector<at::Tensor> tensors;
    for (const Expected& expected : posted_.front()) tensors.push_back(Receive(expected));
    posted_.pop_front();
    return tensors;
  }

 private:
  struct Expected {
    at::Tensor tensor;
    WorkPtr work;  // the receive from Gloo; null if the tensor does not come through Gloo
  };

  Expected Expect(at::Tensor tensor) {
    const bool is_read = wire_ && (IsSmall(tensor) || memory_);
    if (is_read || tensor.numel() == 0) return {std::move(tensor), nullptr};
    WorkPtr work = connection_.Recv(tensor, peer_, tag_);
    return {std::move(tensor), std::move(work)};
  }

  at::Tensor Receive(const Expected& expected) {
    const at::Tensor& tensor = expected.tensor;
    if (tensor.numel() == 0) return tensor;
    std::vector<int64_t> strides(tensor.dim());
    const bool has_strides = wire_ && ReceiveBytes(expected);
    if (has_strides) wire_->Receive(strides.data(), StridesBytes(tensor));
    if (expected.work) connection_.Wait(expected.work, peer_);
    return has_strides ? FromOneRow(tensor, tensor.sizes(), strides) : tensor;
  }

  /// Receives the part of one tensor from the wire, and reads the peer's memory if the part says
  /// so. Returns true if strides follow.
  bool ReceiveBytes(const Expected& expected) {
    const at::Tensor& tensor = expected.tensor;
    if (expected.work) return wire_->Receive(nullptr, 0);
    if (IsSmall(tensor)) return wire_->Receive(tensor.mutable_data_ptr(), tensor.nbytes());
    Found found;
    const bool has_strides = wire_->Receive(&found, sizeof(found));
    memory_->Read(found.address, tensor.mutable_data_ptr(), tensor.nbytes());
    const char has_read = 1;
    reads_->Send(&has_read, 1);
    return has_strides;
  }

  Connection& connection_;
  Wire* const wire_;
  Wire* const reads_;                       // on which this rank confirms its reads
  const std::optional<PeerMemory> memory_;  // empty if this rank cannot read the peer's memory
  int peer_, tag_;
  std::deque<std::vector<Expected>> posted_;
};

class GlooTransport : public Transport {
 public:
  GlooTransport(const RankPlace& place, const std::vector<LinkSpec>& links,
                const std::vector<GroupSpec>& groups, double timeout)
      : rank_(place.rank),
        world_size_(place.world_size),
        connection_(place, links, groups, timeout) {
    groups_ = OpenLinkGroups(*this, groups, SharesMemory::kNo);
  }
  ~GlooTransport() override { Abort("the transport was closed"); }
  int rank() const override { return rank_; }
  int world_size() const override { return world_size_; }
  const char* name() const override { return "gloo"; }

  SendLink& send_link(int peer, int channel) override { return Find(send_links_, peer, channel); }
  RecvLink& recv_link(int peer, int channel) override { return Find(recv_links_, peer, channel); }
  Group* FindGroup(const std::string& name) override { return FindByName(groups_, name); }

  std::vector<double> AllReduceSum(const std::vector<double>& values) override {
    std::vector<double> sum = values;
    const size_t bytes = sum.size() * sizeof(double);
    if (rank_ != 0) {
      SendBytes(0, sum.data(), bytes);
      RecvBytes(0, sum.data(), bytes);
      return sum;
    }
    std::vector<double> theirs(sum.size());
    for (int peer = 1; peer < world_size_; ++peer) {
      RecvBytes(peer, theirs.data(), bytes);
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += theirs[i];
    }
    for (int peer = 1; peer < world_size_; ++peer) SendBytes(peer, sum.data(), bytes);
    return sum;
  }

  std::string Broadcast(const std::string& text, int root) override {
    if (rank_ != 0) {
      if (rank_ != root) return RecvText(0);
      SendText(0, text);
      return text;
    }
    const std::string told = root == 0 ? text : RecvText(root);
    for (int peer = 1; peer < world_size_; ++peer) {
      if (peer != root) SendText(peer, told);
    }
    return told;
  }

  std::vector<std::string> Gather(const std::string& text) override {
    if (rank_ != 0) {
      SendText(0, text);
      return Unpacked(RecvText(0));
    }
    std::vector<std::string> texts = {text};
    for (int peer = 1; peer < world_size_; ++peer) texts.push_back(RecvText(peer));
    const std::string packed = Packed(texts);
    for (int peer = 1; peer < world_size_; ++peer) SendText(peer, packed);
    return texts;
  }

  void Barrier() override { AllReduceSum({0}); }
  void Abort(const std::string& why) override { connection_.Abort(why); }
  void SetStatus(const std::string& status) override {
    Quietly([&] { connection_.SetStatus(status); });
  }
  std::vector<std::string> Statuses() override {
    std::vector<std::string> statuses;
    Quietly([&] { statuses = connection_.Statuses(); });
    return statuses;
  }

 private:
  /// Runs `body` and only logs a failure. The store ends with rank 0, and the loss of rank 0 is
  /// reported elsewhere.
  template <class Body>
  static void Quietly(const Body& body) {
    const QuietStore quiet;
    try {
      body();
    } catch (const std::exception& error) {
      STRATA_LOG(kWarning) << "the store is gone: " << Split(error.what(), '\n').front();
    }
  }

  template <class Link>
  Link& Find(std::map<std::pair<int, int>, std::unique_ptr<Link>>& links, int peer, int channel) {
    STRATA_CHECK(peer >= 0 && peer < world_size_ && peer != rank_) << "no link to rank " << peer;
    std::unique_ptr<Link>& link = links[{peer, channel}];
    if (!link) link = std::make_unique<Link>(connection_, peer, channel);
    return *link;
  }

  /// Joins the texts into one, each after its size.
  static std::string Packed(const std::vector<std::string>& texts) {
    std::string packed;
    for (const std::string& text : texts) {
      const size_t size = text.size();
      packed.append(reinterpret_cast<const char*>(&size), sizeof(size)).append(text);
    }
    return packed;
  }
  static std::vector<std::string> Unpacked(const std::string& packed) {
    std::vector<std::string> texts;
    for (size_t at = 0; at < packed.size(); at += texts.back().size()) {
      size_t size = 0;
      std::memcpy(&size, packed.data() + at, sizeof(size));
      at += sizeof(size);
      texts.push_back(packed.substr(at, size));
    }
    return texts;
  }

  void SendText(int peer, const std::string& text) {
    const size_t size = text.size();
    SendBytes(peer, &size, sizeof(size));
    SendBytes(peer, text.data(), size);
  }
  std::string RecvText(int peer) {
    size_t size = 0;
    RecvBytes(peer, &size, sizeof(size));
    std::string text(size, '\0');
    RecvBytes(peer, text.data(), size);
    return text;
  }

  /// Sends control data. Either `peer` or this rank is rank 0. Both ends must know the size: it
  /// decides between the wire and Gloo, and Gloo ends the process if a message is larger than the
  /// receiver's buffer.
  void SendBytes(int peer, const void* data, size_t size) {
    if (size == 0) return;
    if (size <= kSmallBytes) return connection_.SendControl(peer, data, size);
    at::Tensor bytes = at::empty({static_cast<int64_t>(size)}, at::kByte);
    std::memcpy(bytes.data_ptr(), data, size);
    connection_.Wait(connection_.Send(bytes, peer, kControlTag), peer);
  }
  void RecvBytes(int peer, void* data, size_t size) {
    if (size == 0) return;
    if (size <= kSmallBytes) return connection_.RecvControl(peer, data, size);
    at::Tensor bytes = at::empty({static_cast<int64_t>(size)}, at::kByte);
    connection_.Wait(connection_.Recv(bytes, peer, kControlTag), peer);
    std::memcpy(data, bytes.data_ptr(), size);
  }

  int rank_, world_size_;
  Connection connection_;
  std::map<std::pair<int, int>, std::unique_ptr<GlooSendLink>> send_links_;
  std::map<std::pair<int, int>, std::unique_ptr<GlooRecvLink>> recv_links_;
  std::vector<std::unique_ptr<Group>> groups_;  // last: their threads use the members above
};

}  // namespace

std::set<WireKey> WantedWires(int rank, int world_size, const std::vector<LinkSpec>& links,
                              const std::vector<GroupSpec>& groups) {
  std::set<WireKey> wanted;
  const auto add_link = [&](int peer, int channel) {
    wanted.insert({peer, channel});
    wanted.insert({peer, channel + kReadChannels});
  };
  if (rank > 0) wanted.insert({0, kControlTag});
  for (int other = 1; rank == 0 && other < world_size; ++other) {
    wanted.insert({other, kControlTag});
  }
  for (const LinkSpec& link : WiredGroupLinks(groups, rank)) add_link(link.to, link.channel);
  for (const LinkSpec& link : links) {
    if (link.from == rank) add_link(link.to, link.channel);
    if (link.to == rank) add_link(link.from, link.channel);
  }
  return wanted;
}

std::unique_ptr<Transport> MakeGlooTransport(const RankPlace& place,
                                             const std::vector<LinkSpec>& links,
                                             const std::vector<GroupSpec>& groups, double timeout) {
  return std::make_unique<GlooTransport>(place, links, groups, timeout);
}

}  // namespace strata
