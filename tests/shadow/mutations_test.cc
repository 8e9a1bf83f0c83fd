// What the shadow devices and the fake NCCL are for: an engine whose streams are ordered wrongly,
// or that misuses NCCL, is told so by name. Each mutation takes one thing out of a training that is
// right (engine_test.cc).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "engine/base/text.h"
#include "tests/shadow/training.h"

namespace strata::shadow {
namespace {

using ::testing::HasSubstr;

constexpr Case kPipe = {"dense", "1f1b", 2};
constexpr Case kReplicas = {"dense", "1f1b", 1, 2};

/// Which of a rank's calls, counted from 0 by what they are.
struct Which {
  const char* host;
  const char* call;
  int number;
};

/// Counts calls and finds the one that is meant.
class Finder {
 public:
  explicit Finder(const Which& which) : which_(which) {}
  bool Is(const char* call, const std::string& host) {
    return host == which_.host && std::string(call) == which_.call && count_++ == which_.number;
  }

 private:
  const Which which_;
  int count_ = 0;
};

enum class Change { kNone, kDrop, kShorter, kOtherType, kOtherStream, kTwice, kOtherOp };

/// The fake NCCL, one call of which is not as the engine made it.
class MutatedNccl : public FakeNccl {
 public:
  MutatedNccl(const Which& which, Change change) : finder_(which), change_(change) {}

  NcclResult Send(NcclMemory from, int peer, NcclComm* comm, c10::Stream stream) override {
    return Call("send", from, stream, [&] { return FakeNccl::Send(from, peer, comm, stream); });
  }
  NcclResult Recv(NcclMemory to, int peer, NcclComm* comm, c10::Stream stream) override {
    return Call("recv", to, stream, [&] { return FakeNccl::Recv(to, peer, comm, stream); });
  }
  NcclResult AllReduce(NcclMemory from, void* to, ReduceOp op, NcclComm* comm,
                       c10::Stream stream) override {
    return Call("all_reduce", from, stream, [&] {
      return FakeNccl::AllReduce(from, to, mutated_ ? ReduceOp::kMax : op, comm, stream);
    });
  }
  NcclResult GroupEnd() override {
    NcclMemory none;
    c10::Stream stream = CurrentOf();
    return Call("group_end", none, stream, [&] { return FakeNccl::GroupEnd(); });
  }
  NcclResult Finalize(NcclComm* comm) override {
    NcclMemory none;
    c10::Stream stream = CurrentOf();
    return Call("finalize", none, stream, [&] { return FakeNccl::Finalize(comm); });
  }

 private:
  static c10::Stream CurrentOf() { return Machine::Get().StreamOf(0); }

  template <class Function>
  NcclResult Call(const char* name, NcclMemory& memory, c10::Stream& stream, const Function& call) {
    const auto lock = Machine::Get().Hold();
    const int device = stream.device_index();
    if (!finder_.Is(name, Machine::Get().NameOfHost(Machine::Get().ThisHost()))) return call();
    switch (change_) {
      case Change::kNone:
        break;
      case Change::kDrop:
        return NcclResult::kDone;
      case Change::kShorter:
        --memory.count;
        break;
      case Change::kOtherType:
        memory.type = c10::kInt;
        break;
      case Change::kOtherStream:
        stream = Machine::Get().StreamOf(device);  // the default stream
        break;
      case Change::kTwice:
        call();
        break;
      case Change::kOtherOp:
        mutated_ = true;
        break;
    }
    const NcclResult result = call();
    mutated_ = false;
    return result;
  }

  Finder finder_;
  const Change change_;
  bool mutated_ = false;
};

/// One thing that is wrong, and how it is told.
struct Mutation {
  const char* name;
  Case training;
  Which which;
  Change change;         ///< of a call of NCCL's; kDrop also of "record", "wait", "record_stream"
  const char* expected;  ///< in what is told
};
void PrintTo(const Mutation& m, std::ostream* out) { *out << m.name; }

constexpr const char* kOrderings[] = {"record", "wait", "record_stream"};

/// All that was told of a training.
std::string Told(const Mutation& m) {
  Machine::Get().Reset();
  Finder finder(m.which);
  Machine::Get().Sabotage([&](Ordering kind, const std::string& host) {
    return finder.Is(kOrderings[static_cast<int>(kind)], host);
  });
  MutatedNccl nccl(m.which, m.change);
  Outcome outcome;
  std::vector<std::string> told = TrainOver(nccl, m.training, "shadow", outcome);
  for (const std::string& text : Machine::Get().reports()) told.push_back(text);
  for (const std::string& text : nccl.misuses()) told.push_back(text);
  for (const std::string& text : nccl.unfinished()) told.push_back(text);
  std::erase(told, "");
  return Join(told, "\n");
}

class MutationTest : public ::testing::TestWithParam<Mutation> {};

TEST_P(MutationTest, IsToldByName) {
  const std::string told = Told(GetParam());
  EXPECT_THAT(told, HasSubstr(GetParam().expected)) << "of " << GetParam().name;
  std::printf("%-48s %s\n", GetParam().name, told.substr(0, told.find('\n')).c_str());
}

TEST(MutationTest, NothingIsToldOfATrainingThatIsRight) {
  for (const Case& c : {kPipe, kReplicas}) {
    EXPECT_EQ(Told({"none", c, {"nobody", "", 0}, Change::kNone, ""}), "");
  }
}

constexpr const char* kNoEvent = "with no event between";
constexpr const char* kFreed = "is freed while";

std::vector<Mutation> Mutations() {
  std::vector<Mutation> all = {
      {"a short message", kPipe, {"rank 0", "send", 6}, Change::kShorter, "meets"},
      {"a short receive", kPipe, {"rank 1", "recv", 6}, Change::kShorter, "meets"},
      {"a message of another type", kPipe, {"rank 0", "send", 6}, Change::kOtherType, "meets"},
      {"a receive of another type", kPipe, {"rank 0", "recv", 2}, Change::kOtherType, "meets"},
      {"a message that is not sent", kPipe, {"rank 0", "send", 6}, Change::kDrop, "rank"},
      {"a message that is sent twice", kPipe, {"rank 0", "send", 6}, Change::kTwice, "rank"},
      {"a receive that is made twice", kPipe, {"rank 1", "recv", 6}, Change::kTwice, "rank"},
      {"a gradient that is not received", kPipe, {"rank 0", "recv", 2}, Change::kDrop, "rank"},
      {"a message on the compute stream",
       kPipe,
       {"rank 0", "send", 6},
       Change::kOtherStream,
       "and the default stream of"},
      {"a receive on the compute stream",
       kPipe,
       {"rank 1", "recv", 6},
       Change::kOtherStream,
       "and the default stream of"},
      {"a group left open",
       kPipe,
       {"rank 0", "group_end", 8},
       Change::kDrop,
       "a group was left open by rank 0"},
      {"a group ended twice",
       kPipe,
       {"rank 1", "group_end", 8},
       Change::kTwice,
       "a group ends that was not begun"},
      {"a communicator freed unfinished",
       kPipe,
       {"rank 1", "finalize", 0},
       Change::kDrop,
       "not finalized"},
      {"a sum on one rank is a maximum",
       kReplicas,
       {"rank 1", "all_reduce", 3},
       Change::kOtherOp,
       "meets"},
      {"a short sum", kReplicas, {"rank 1", "all_reduce", 3}, Change::kShorter, "meets"},
      {"a sum that a rank leaves out",
       kReplicas,
       {"rank 1", "all_reduce", 3},
       Change::kDrop,
       "rank"},
  };
  return all;
}

INSTANTIATE_TEST_SUITE_P(OfNccl, MutationTest, ::testing::ValuesIn(Mutations()),
                         [](const auto& info) {
                           std::string name = info.param.name;
                           std::ranges::replace(name, ' ', '_');
                           return name;
                         });

/// The events, waits and records of memory of a rank, one after the other.
std::vector<Mutation> Orderings() {
  std::vector<Mutation> all;
  for (const auto& [training, host, call, numbers] :
       std::vector<std::tuple<Case, const char*, const char*, std::vector<int>>>{
           {kPipe, "rank 0", "wait", {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}},
           {kPipe, "rank 1", "wait", {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}},
           {kPipe, "rank 0", "record", {0, 1, 2, 3, 4, 5}},
           {kPipe, "rank 1", "record", {0, 1, 2, 3, 4, 5}},
           {kPipe, "rank 0", "record_stream", {0, 1, 2, 3, 4}},
           {kPipe, "rank 1", "record_stream", {0, 1, 2, 3, 4}},
           {kReplicas, "rank 0", "wait", {0, 1, 2, 3}},
           {kReplicas, "rank 1", "wait", {0, 1, 2, 3}}}) {
    for (const int number : numbers) {
      all.push_back({call,
                     training,
                     {host, call, number},
                     Change::kNone,
                     std::string(call) == "record_stream" ? kFreed : "stream "});
    }
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(OfStreams, MutationTest, ::testing::ValuesIn(Orderings()),
                         [](const auto& info) {
                           const Mutation& m = info.param;
                           std::string name =
                               Str(m.training.data > 1 ? "replicas_" : "pipe_", m.which.host, "_",
                                   m.which.call, "_", m.which.number);
                           std::ranges::replace(name, ' ', '_');
                           return name;
                         });

}  // namespace
}  // namespace strata::shadow
