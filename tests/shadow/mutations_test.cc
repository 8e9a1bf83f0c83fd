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
  std::string call = {}, host = {}, action = {};
  int number = 0;
};

class Finder {
 public:
  explicit Finder(Which which) : which_(std::move(which)) {}
  const std::string& call() const { return which_.call; }
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

const std::map<std::string, Change> kChanges = {
    {"drop", Change::kDrop},
    {"twice", Change::kTwice},
    {"late", Change::kLate},
    {"shorter", Change::kShorter},
    {"longer", Change::kLonger},
    {"host", Change::kHostMemory},
    {"other type", Change::kOtherType},
    {"other op", Change::kOtherOp},
    {"other root", Change::kOtherRoot},
    {"compute", Change::kDefaultStream},
    {"taken", Change::kTakenStream},
    {"after end", Change::kAfterEnd},
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

const std::map<std::string, Case> kTrainings = {
    {"pipe", {"dense", "1f1b", 2}},
    {"data", {"dense", "1f1b", 1, 2}},
    {"zero", {"dense", "1f1b", 1, 2, 1, {{"zero", 1}}}},
    {"late", {"large", "1f1b", 1, 2, 1, {{"zero", 2}}}},
    {"buckets", {"large", "1f1b", 1, 2}},
    {"state", {"images", "1f1b", 1, 2}},
    {"tied", {"tied", "1f1b", 2}},
};

/// One thing that is wrong, and how it is told.
struct Mutation {
  std::string name = {};
  Case training = {};
  Which which = {};
  Change change = Change::kDrop;
  std::string expected = {};  ///< in what is told
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
  std::printf("%-44s | %s\n", m.name.c_str(), told.c_str());
}

TEST(MutationTest, NothingIsToldOfATrainingThatIsRight) {
  for (const auto& [name, training] : kTrainings) {
    EXPECT_EQ(Told({"none", training, {"none"}}), "") << name;
  }
}

// What is wrong | the training | on which rank | in which action | which of the calls there | how
// it is changed | what is told. "early": also, all receives are launched when they are
// posted.

/// Streams: events, waits for them, and memory.
constexpr const char* kOfStreams = R"(
an activation is read before it has come      | pipe    | 1 | 1F1          | wait 1          | drop | no event between
a gradient is read before it has come         | pipe    | 0 | 0B1          | wait 1          | drop | no event between
an activation is sent before it is computed   | pipe    | 0 | 0SEND_F1     | wait 0          | drop | no event between
a gradient is sent before it is computed      | pipe    | 1 | 1SEND_B1     | wait 0          | drop | no event between
an activation comes over one still read       | pipe    | 1 | 1F1          | wait 0          | drop | may still be read
a gradient comes over one still read          | pipe    | 0 | 0B1          | wait 0          | drop | may still be read
no event behind an activation                 | pipe    | 0 | 0SEND_F1     | record 0        | drop | no event between
no event behind a gradient                    | pipe    | 1 | 1SEND_B1     | record 0        | drop | no event between
no event behind a received message            | pipe    | 1 | 1F1          | record 0        | drop | no event between
no event behind the reader of a message       | pipe    | 1 | 1B0          | record 0        | drop | may still be read
a sent activation is freed                    | pipe    | 0 | 0SEND_F1     | record_stream 0 | drop | is freed while
a sent gradient is freed                      | pipe    | 1 | 1SEND_B1     | record_stream 0 | drop | is freed while
an input is read before it is copied          | pipe    | 0 | 0F1          | wait 0          | drop | no event between
a target is read before it is copied          | pipe    | 1 | 1F1          | wait 2          | drop | no event between
an input is copied over one still read        | pipe    | 0 | 0F3          | wait 1          | drop | may still be read
no event behind a copy                        | pipe    | 0 | 0F1          | record 0        | drop | no event between
a copy from memory that is not pinned         | pipe    | 0 | 0F1          | pin all         | drop | the host waits
gradients are summed before they are there    | data    | 1 | 0REDUCE_GRAD | wait 0          | drop | no event between
sums are read before they are there           | data    | 0 | 0STEP        | wait 0          | drop | no event between
no event behind gradients                     | data    | 1 | 0REDUCE_GRAD | record 0        | drop | no event between
no event behind a sum                         | data    | 0 | 0REDUCE_GRAD | record 1        | drop | no event between
a bucket is summed before it is there         | buckets | 0 | 0B1          | wait 0          | drop | no event between
a bucket is read before it is summed          | buckets | 1 | 0STEP        | wait 2          | drop | no event between
a late block is summed before it is there     | late    | 0 | 0B1          | wait 0          | drop | no event between
values are gathered before they are updated   | zero    | 0 | 0STEP        | wait 1          | drop | no event between
values are read before they are gathered      | zero    | 1 | 0STEP        | wait 2          | drop | no event between
statistics are averaged before they are there | state   | 1 | 0STEP        | wait 1          | drop | no event between
tied gradients go before they are there       | tied    | 0 | 0REDUCE_TIED | wait 0          | drop | no event between
tied gradients are read before they have come | tied    | 0 | 0REDUCE_TIED | wait 1          | drop | no event between
)";

/// NCCL: which calls are made, with what, in which order.
constexpr const char* kOfNccl = R"(
receives posted early, no connection | pipe    | all | any          | connect all   | early      | its first connection
receives posted early                | pipe    | all | any          | none 0        | early      | a cycle,
a short message                      | pipe    | 0   | 0SEND_F1     | send 0        | shorter    | meets
a short receive                      | pipe    | 1   | 1F1          | recv 0        | shorter    | meets
a message longer than its memory     | pipe    | 0   | 0SEND_F1     | send 0        | longer     | is not on shadow:0
a message from the host's memory     | pipe    | 0   | 0SEND_F1     | send 0        | host       | is not on shadow:0
a message of another type            | pipe    | 0   | 0SEND_F1     | send 0        | other type | meets
a receive of another type            | pipe    | 0   | 0B1          | recv 0        | other type | meets
a message that is not sent           | pipe    | 0   | 0SEND_F1     | send 0        | drop       | rank 0
a message that is sent twice         | pipe    | 0   | 0SEND_F1     | send 0        | twice      | rank 0
a receive that is made twice         | pipe    | 1   | 1F1          | recv 0        | twice      | rank 0
a gradient that is not received      | pipe    | 0   | 0B1          | recv 0        | drop       | rank 1
a message on the compute stream      | pipe    | 0   | 0SEND_F1     | send 0        | compute    | the default stream
a receive on the compute stream      | pipe    | 1   | 1F1          | recv 0        | compute    | the default stream
a stream taken twice                 | pipe    | 0   | 0B1          | recv 0        | taken      | two communicators
a group left open                    | pipe    | 0   | 0SEND_F1     | group_end 0   | drop       | left open by rank 0
a group ended twice                  | pipe    | 1   | 1F1          | group_end 0   | twice      | was not begun
a group not begun                    | pipe    | 1   | 1F1          | group_start 0 | drop       | was not begun
a communicator freed unfinished      | pipe    | 1   | any          | finalize 0    | drop       | not finalized
a communicator used after its end    | pipe    | 0   | 0SEND_F1     | send 0        | after end  | used after its end
a sum that is a maximum on one rank  | data    | 1   | 0REDUCE_GRAD | all_reduce 0  | other op   | meets
a short sum                          | data    | 1   | 0REDUCE_GRAD | all_reduce 0  | shorter    | meets
a sum that a rank leaves out         | data    | 1   | 0REDUCE_GRAD | all_reduce 0  | drop       | 1 has not launched
a sum that a rank makes twice        | data    | 1   | 0REDUCE_GRAD | all_reduce 0  | twice      | rank
sums in another order on one rank    | buckets | 1   | 0B1          | all_reduce 0  | late       | meets
a share that a rank does not reduce  | zero    | 1   | 0REDUCE_GRAD | reduce 0      | drop       | meets
a broadcast from another rank        | zero    | 1   | 0STEP        | broadcast 0   | other root | meets
a broadcast that a rank leaves out   | zero    | 0   | 0STEP        | broadcast 1   | drop       | rank
)";

std::vector<Mutation> Parsed(const char* table) {
  std::vector<Mutation> mutations;
  for (const std::string& line : Split(table, '\n')) {
    if (line.empty()) continue;
    std::vector<std::string> cells;
    for (const std::string& cell : Split(line, '|')) cells.emplace_back(Trim(cell));
    const std::vector<std::string> call = Split(cells.at(4), ' ');
    Mutation& m = mutations.emplace_back();
    m.name = cells[0];
    m.training = kTrainings.at(cells[1]);
    m.which = {call.at(0), cells[2] == "all" ? "" : Str("rank ", cells[2]),
               cells[3] == "any" ? "" : cells[3], call.at(1) == "all" ? kAll : std::stoi(call[1])};
    m.is_eager = cells[5] == "early";
    m.change = m.is_eager ? Change::kDrop : kChanges.at(cells[5]);
    m.expected = cells.at(6);
  }
  return mutations;
}

std::string NameOf(const ::testing::TestParamInfo<Mutation>& info) {
  std::string name = info.param.name;
  std::ranges::replace(name, ' ', '_');
  std::erase_if(name, [](char c) { return c == ',' || c == '\''; });
  return name;
}

INSTANTIATE_TEST_SUITE_P(OfStreams, MutationTest, ::testing::ValuesIn(Parsed(kOfStreams)), NameOf);
INSTANTIATE_TEST_SUITE_P(OfNccl, MutationTest, ::testing::ValuesIn(Parsed(kOfNccl)), NameOf);

}  // namespace
}  // namespace strata::shadow
