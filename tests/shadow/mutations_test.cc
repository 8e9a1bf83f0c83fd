// What the shadow devices and the fake NCCL are for: an engine whose streams are ordered wrongly,
// or that misuses NCCL, is told so by name. Each mutation takes one thing out of a training that is
// right (engine_test.cc): a line of a table.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "engine/base/text.h"
#include "engine/runtime/watch/named_range.h"
#include "tests/shadow/ranks.h"
#include "tests/shadow/training.h"

namespace strata::shadow {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int kAll = -1;

/// Which calls are meant: of a rank, in an action of its row ("" = in any, or beside them), the
/// one with that number among those, or all. A call is one of NCCL's by its name here, "connect"
/// (what only connects), or of the devices "record", "wait", "record_stream", "pin".
struct Which {
  const char* call;
  std::string host = {}, action = {};
  int number = 0;
};

class Finder {
 public:
  explicit Finder(Which which) : which_(std::move(which)) {}
  const char* call() const { return which_.call; }
  bool Is(const std::string& call, const std::string& host) {
    if (call != which_.call || (!which_.host.empty() && host != which_.host)) return false;
    if (!which_.action.empty() && NamedRange::Outermost() != which_.action) return false;
    return which_.number == kAll || count_++ == which_.number;
  }

 private:
  const Which which_;
  int count_ = 0;
};

enum class Change {
  kDrop,
  kTwice,
  kLate,  ///< after the rank's next one
  kShorter,
  kLonger,  ///< than its memory
  kHostMemory,
  kOtherType,
  kOtherOp,
  kOtherRoot,
  kDefaultStream,
  kTakenStream,  ///< of the rank's call before, of another communicator
  kAfterEnd,
};

/// The fake NCCL, some calls of which are not as the engine made them.
class MutatedNccl : public FakeNccl {
 public:
  MutatedNccl(const Which& which, Change change) : finder_(which), change_(change) {}

  NcclResult Send(NcclMemory from, int peer, NcclComm* comm, c10::Stream stream) override {
    return Call("send", {from, peer, comm, stream}, [this](const Made& m) {
      return FakeNccl::Send(m.memory, m.root, m.comm, m.stream);
    });
  }
  NcclResult Recv(NcclMemory to, int peer, NcclComm* comm, c10::Stream stream) override {
    return Call("recv", {to, peer, comm, stream}, [this](const Made& m) {
      return FakeNccl::Recv(m.memory, m.root, m.comm, m.stream);
    });
  }
  NcclResult AllReduce(NcclMemory from, void* to, ReduceOp op, NcclComm* comm,
                       c10::Stream stream) override {
    return Call("all_reduce", {from, 0, comm, stream, op}, [this, to](const Made& m) {
      return FakeNccl::AllReduce(m.memory, to, m.op, m.comm, m.stream);
    });
  }
  NcclResult Reduce(NcclMemory from, void* to, ReduceOp op, int root, NcclComm* comm,
                    c10::Stream stream) override {
    return Call("reduce", {from, root, comm, stream, op}, [this, to](const Made& m) {
      return FakeNccl::Reduce(m.memory, to, m.op, m.root, m.comm, m.stream);
    });
  }
  NcclResult Broadcast(NcclMemory from, void* to, int root, NcclComm* comm,
                       c10::Stream stream) override {
    return Call("broadcast", {from, root, comm, stream}, [this, to](const Made& m) {
      return FakeNccl::Broadcast(m.memory, to, m.root, m.comm, m.stream);
    });
  }
  NcclResult GroupStart() override {
    return Call("group_start", {}, [this](const Made&) { return FakeNccl::GroupStart(); });
  }
  NcclResult GroupEnd() override {
    return Call("group_end", {}, [this](const Made&) { return FakeNccl::GroupEnd(); });
  }
  NcclResult Finalize(NcclComm* comm) override {
    return Call("finalize", {{}, 0, comm},
                [this](const Made& m) { return FakeNccl::Finalize(m.comm); });
  }

 private:
  /// A call's arguments, as far as it has them.
  struct Made {
    NcclMemory memory;
    int root = 0;
    NcclComm* comm = nullptr;
    c10::Stream stream = Machine::Get().StreamOf(0);
    ReduceOp op = ReduceOp::kSum;
  };
  using Make = std::function<NcclResult(const Made&)>;

  NcclResult Call(std::string name, Made made, const Make& make) {
    const auto lock = Machine::Get().Hold();
    const std::string host = Machine::Get().NameOfHost(Machine::Get().ThisHost());
    if (made.memory.begin && made.memory.type == c10::kByte && made.memory.count == 1) {
      name = "connect";
    }
    const Made as_made = made;
    const bool ends_late = late_ && late_host_ == host && name == finder_.call();
    NcclResult result = finder_.Is(name, host) ? Mutated(made, host, make) : make(made);
    if (as_made.comm) last_.insert_or_assign(host, as_made);
    if (ends_late) result = std::max(result, std::exchange(late_, nullptr)());
    return result;
  }

  NcclResult Mutated(Made made, const std::string& host, const Make& make) {
    const int device = made.stream.device_index();
    switch (change_) {
      case Change::kDrop:
        return NcclResult::kDone;
      case Change::kTwice:
        make(made);
        break;
      case Change::kLate:
        late_ = [make, made] { return make(made); };
        late_host_ = host;
        return NcclResult::kDone;
      case Change::kShorter:
        --made.memory.count;
        break;
      case Change::kLonger:
        made.memory.count += 1 << 24;
        break;
      case Change::kHostMemory:
        made.memory.begin = host_memory_.data();
        break;
      case Change::kOtherType:
        made.memory.type = c10::kInt;
        break;
      case Change::kOtherOp:
        made.op = ReduceOp::kMax;
        break;
      case Change::kOtherRoot:
        made.root = 1 - made.root;
        break;
      case Change::kDefaultStream:
        made.stream = Machine::Get().StreamOf(device);
        break;
      case Change::kTakenStream:
        made.stream = last_.at(host).stream;
        break;
      case Change::kAfterEnd:
        FakeNccl::Destroy(made.comm);
        break;
    }
    return make(made);
  }
  Finder finder_;
  const Change change_;
  std::map<std::string, Made> last_;  // call with a communicator, by host
  std::function<NcclResult()> late_;  // is made after the next call
  std::string late_host_;
  std::vector<std::byte> host_memory_ = std::vector<std::byte>(1 << 16);
};

/// Launches each receive when it is posted, as the engine's first state did.
class EagerTransport : public Forwarding {
 public:
  explicit EagerTransport(std::unique_ptr<Transport> transport)
      : transport_(std::move(transport)) {}
  RecvLink& recv_link(int peer, int channel) override {
    return links_.try_emplace({peer, channel}, Forwarding::recv_link(peer, channel)).first->second;
  }

 private:
  class Link : public RecvLink {
   public:
    explicit Link(RecvLink& link) : link_(link) {}
    void Post(const TensorSpecs& specs) override {
      link_.Post(specs);
      come_.push_back(link_.Wait());
    }
    std::vector<at::Tensor> Wait() override {
      std::vector<at::Tensor> tensors = std::move(come_.front());
      come_.pop_front();
      return tensors;
    }

   private:
    RecvLink& link_;
    std::deque<std::vector<at::Tensor>> come_;
  };

  Transport& to() const override { return *transport_; }

  const std::unique_ptr<Transport> transport_;
  std::map<std::pair<int, int>, Link> links_;
};

const Case kPipe = {"dense", "1f1b", 2};
const Case kReplicas = {"dense", "1f1b", 1, 2};
const Case kZero = {"dense", "1f1b", 1, 2, 1, {{"zero", 1}}};
const Case kBuckets = {"large", "1f1b", 1, 2};
const Case kImages = {"images", "1f1b", 1, 2};
const Case kTied = {"tied", "1f1b", 2};

/// One thing that is wrong, and how it is told.
struct Mutation {
  const char* name;
  Case training;
  Which which;
  Change change;
  const char* expected;  ///< in what is told
  bool is_eager = false;
};
void PrintTo(const Mutation& m, std::ostream* out) { *out << m.name; }

const char* CallOf(Ordering ordering) {
  constexpr const char* kNames[] = {"record", "wait", "record_stream", "pin"};
  return kNames[static_cast<int>(ordering)];
}

/// All that was told of a training.
std::string Told(const Mutation& m) {
  Machine::Get().Reset();
  Finder finder(m.which);
  Machine::Get().Sabotage([&](Ordering ordering, const std::string& host) {
    return finder.Is(CallOf(ordering), host);
  });
  MutatedNccl nccl(m.which, m.change);
  Outcome outcome;
  const auto eager = [](std::unique_ptr<Transport> transport) {
    return std::make_unique<EagerTransport>(std::move(transport));
  };
  std::vector<std::string> told =
      TrainOver(nccl, m.training, "shadow", outcome, m.is_eager ? Wrap(eager) : nullptr);
  for (const std::string& text : Machine::Get().reports()) told.push_back(text);
  for (const std::string& text : nccl.misuses()) told.push_back(text);
  for (const std::string& text : nccl.unfinished()) told.push_back(text);
  for (const auto& [action, count] : outcome.counts) {
    for (const auto& [why, times] : count.synchronising) {
      if (!action.ends_with("STEP")) told.push_back(Str("the host waits in ", action, ": ", why));
    }
  }
  std::erase(told, "");
  return Join(told, "\n");
}

class MutationTest : public ::testing::TestWithParam<Mutation> {};

TEST_P(MutationTest, IsToldByName) {
  const Mutation& m = GetParam();
  const std::string told = Told(m);
  EXPECT_THAT(told, HasSubstr(m.expected)) << "of " << m.name;
  std::printf("%-44s | %s\n", m.name, told.c_str());
}

TEST(MutationTest, NothingIsToldOfATrainingThatIsRight) {
  for (const Case& c : {kPipe, kReplicas, kZero, kBuckets, kImages, kTied}) {
    EXPECT_EQ(Told({"none", c, {"none"}, Change::kDrop, ""}), "");
  }
}

constexpr const char* kNoEvent = "with no event between";
constexpr const char* kStillRead = "that may still be read by";
using enum Change;

// clang-format off: a line each.
// Streams: events, waits for them, and memory.
const std::vector<Mutation> kOfStreams = {
    {"an activation is read before it has come",
     kPipe,
     {"wait", "rank 1", "1F1", 1},
     kDrop,
     kNoEvent},
    {"a gradient is read before it has come", kPipe, {"wait", "rank 0", "0B1", 1}, kDrop, kNoEvent},
    {"an activation comes over one still read",
     kPipe,
     {"wait", "rank 1", "1F1"},
     kDrop,
     kStillRead},
    {"a gradient comes over one still read", kPipe, {"wait", "rank 0", "0B1"}, kDrop, kStillRead},
    {"no event behind a received message", kPipe, {"record", "rank 1", "1F1"}, kDrop, kNoEvent},
    {"no event behind the reader of a message",
     kPipe,
     {"record", "rank 1", "1B0"},
     kDrop,
     kStillRead},
    {"a sent activation is freed",
     kPipe,
     {"record_stream", "rank 0", "0SEND_F1"},
     kDrop,
     "is freed while"},
    {"a sent gradient is freed",
     kPipe,
     {"record_stream", "rank 1", "1SEND_B1"},
     kDrop,
     "is freed while"},
    {"an input is read before it is copied", kPipe, {"wait", "rank 0", "0F1"}, kDrop, kNoEvent},
    {"a target is read before it is copied", kPipe, {"wait", "rank 1", "1F1", 2}, kDrop, kNoEvent},
    {"an input is copied over one still read",
     kPipe,
     {"wait", "rank 0", "0F3", 1},
     kDrop,
     kStillRead},
    {"no event behind a copy", kPipe, {"record", "rank 0", "0F1"}, kDrop, kNoEvent},
    {"a copy from memory that is not pinned",
     kPipe,
     {"pin", "rank 0", "0F1", kAll},
     kDrop,
     "the host waits"},
    {"gradients are summed before they are there",
     kReplicas,
     {"wait", "rank 1", "0REDUCE_GRAD"},
     kDrop,
     kNoEvent},
    {"sums are read before they are there",
     kReplicas,
     {"wait", "rank 0", "0STEP"},
     kDrop,
     kNoEvent},
    {"no event behind gradients", kReplicas, {"record", "rank 1", "0REDUCE_GRAD"}, kDrop, kNoEvent},
    {"no event behind a sum", kReplicas, {"record", "rank 0", "0REDUCE_GRAD", 1}, kDrop, kNoEvent},
    {"a bucket is summed before it is there", kBuckets, {"wait", "rank 0", "0B1"}, kDrop, kNoEvent},
    {"values are gathered before they are updated",
     kZero,
     {"wait", "rank 0", "0STEP", 1},
     kDrop,
     kNoEvent},
    {"values are read before they are gathered",
     kZero,
     {"wait", "rank 1", "0STEP", 2},
     kDrop,
     kNoEvent},
    {"statistics are averaged before they are there",
     kImages,
     {"wait", "rank 1", "0STEP", 1},
     kDrop,
     kNoEvent},
    {"tied gradients go before they are there",
     kTied,
     {"wait", "rank 0", "0REDUCE_TIED"},
     kDrop,
     kNoEvent},
    {"tied gradients are read before they have come",
     kTied,
     {"wait", "rank 0", "0REDUCE_TIED", 1},
     kDrop,
     kNoEvent},
};

// NCCL: which calls are made, with what, in which order.
const std::vector<Mutation> kOfNccl = {
    {"receives posted early, no connection",
     kPipe,
     {"connect", "", "", kAll},
     kDrop,
     "its first connection",
     true},
    {"receives posted early", kPipe, {"none", "", ""}, kDrop, "a cycle,", true},
    {"a short message", kPipe, {"send", "rank 0", "0SEND_F1"}, kShorter, "meets"},
    {"a short receive", kPipe, {"recv", "rank 1", "1F1"}, kShorter, "meets"},
    {"a message longer than its memory",
     kPipe,
     {"send", "rank 0", "0SEND_F1"},
     kLonger,
     "is not on shadow:0"},
    {"a message from the host's memory",
     kPipe,
     {"send", "rank 0", "0SEND_F1"},
     kHostMemory,
     "is not on shadow:0"},
    {"a message of another type", kPipe, {"send", "rank 0", "0SEND_F1"}, kOtherType, "meets"},
    {"a receive of another type", kPipe, {"recv", "rank 0", "0B1"}, kOtherType, "meets"},
    {"a message that is not sent", kPipe, {"send", "rank 0", "0SEND_F1"}, kDrop, "rank 0"},
    {"a message that is sent twice", kPipe, {"send", "rank 0", "0SEND_F1"}, kTwice, "rank 0"},
    {"a receive that is made twice", kPipe, {"recv", "rank 1", "1F1"}, kTwice, "rank 0"},
    {"a gradient that is not received", kPipe, {"recv", "rank 0", "0B1"}, kDrop, "rank 1"},
    {"a message on the compute stream",
     kPipe,
     {"send", "rank 0", "0SEND_F1"},
     kDefaultStream,
     "the default stream"},
    {"a receive on the compute stream",
     kPipe,
     {"recv", "rank 1", "1F1"},
     kDefaultStream,
     "the default stream"},
    {"a stream taken twice", kPipe, {"recv", "rank 0", "0B1"}, kTakenStream, "two communicators"},
    {"a group left open", kPipe, {"group_end", "rank 0", "0SEND_F1"}, kDrop, "left open by rank 0"},
    {"a group ended twice", kPipe, {"group_end", "rank 1", "1F1"}, kTwice, "was not begun"},
    {"a group not begun", kPipe, {"group_start", "rank 1", "1F1"}, kDrop, "was not begun"},
    {"a communicator freed unfinished", kPipe, {"finalize", "rank 1", ""}, kDrop, "not finalized"},
    {"a communicator used after its end",
     kPipe,
     {"send", "rank 0", "0SEND_F1"},
     kAfterEnd,
     "used after its end"},
    {"a sum that is a maximum on one rank",
     kReplicas,
     {"all_reduce", "rank 1", "0REDUCE_GRAD"},
     kOtherOp,
     "meets"},
    {"a short sum", kReplicas, {"all_reduce", "rank 1", "0REDUCE_GRAD"}, kShorter, "meets"},
    {"a sum that a rank leaves out",
     kReplicas,
     {"all_reduce", "rank 1", "0REDUCE_GRAD"},
     kDrop,
     "1 has not launched"},
    {"a sum that a rank makes twice",
     kReplicas,
     {"all_reduce", "rank 1", "0REDUCE_GRAD"},
     kTwice,
     "rank"},
    {"a share that a rank does not reduce",
     kZero,
     {"reduce", "rank 1", "0REDUCE_GRAD"},
     kDrop,
     "meets"},
    {"a broadcast from another rank", kZero, {"broadcast", "rank 1", "0STEP"}, kOtherRoot, "meets"},
    {"a broadcast that a rank leaves out",
     kZero,
     {"broadcast", "rank 0", "0STEP", 1},
     kDrop,
     "rank"},
};
// clang-format on

std::string NameOf(const ::testing::TestParamInfo<Mutation>& info) {
  std::string name = info.param.name;
  std::ranges::replace(name, ' ', '_');
  std::erase_if(name, [](char c) { return c == ',' || c == '\''; });
  return name;
}

INSTANTIATE_TEST_SUITE_P(OfStreams, MutationTest, ::testing::ValuesIn(kOfStreams), NameOf);
INSTANTIATE_TEST_SUITE_P(OfNccl, MutationTest, ::testing::ValuesIn(kOfNccl), NameOf);

}  // namespace
}  // namespace strata::shadow
