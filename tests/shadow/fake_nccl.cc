#include "tests/shadow/fake_nccl.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <set>
#include <tuple>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/text.h"

namespace strata {

/// One rank's end of a room.
struct NcclComm {
  std::shared_ptr<shadow::FakeNccl::Room> room;
  int rank = 0;
  int host = -1;
  int stream = -1;                            // that it uses
  std::vector<shadow::FakeNccl::Call> calls;  // made, and not launched: it connects
  std::vector<std::shared_ptr<shadow::Meeting>> launched;
  std::map<int, int> sent, received;  // messages, by peer
  int collectives = 0;
  bool is_finalized = false;
  bool is_over = false;
  bool peer_is_gone = false;
  std::string error;
  std::atomic<int> inside = 0;  // threads in its functions
};

}  // namespace strata

namespace strata::shadow {
namespace {

thread_local int group_depth = 0;
thread_local std::vector<FakeNccl::Call> group_calls;

at::Tensor Numbers(const NcclMemory& memory) {
  return at::from_blob(memory.begin, {static_cast<int64_t>(memory.count)}, memory.type);
}

size_t Bytes(const NcclMemory& memory) { return memory.count * c10::elementSize(memory.type); }

std::string Describe(const NcclMemory& memory) {
  return Str(c10::toString(memory.type), " (", memory.count, ",)");
}

void Move(const NcclMemory& from, void* to) {
  if (from.begin != to) std::memmove(to, from.begin, Bytes(from));
}

at::Tensor Combined(const std::vector<at::Tensor>& inputs, ReduceOp op) {
  at::Tensor result = inputs[0].clone();
  for (size_t i = 1; i < inputs.size(); ++i) {
    switch (op) {
      case ReduceOp::kSum:
      case ReduceOp::kAvg:
        result.add_(inputs[i]);
        break;
      case ReduceOp::kMin:
        result = at::minimum(result, inputs[i]);
        break;
      case ReduceOp::kMax:
        result = at::maximum(result, inputs[i]);
        break;
      case ReduceOp::kProduct:
        result.mul_(inputs[i]);
        break;
    }
  }
  return op == ReduceOp::kAvg ? result.div(static_cast<double>(inputs.size())) : result;
}

}  // namespace

/// What a rank called. `to.begin` is null for a message that is sent.
struct FakeNccl::Call {
  enum class Kind { kSend, kRecv, kAllReduce, kReduce, kBroadcast };
  Kind kind;
  NcclMemory from, to;
  int peer = -1;  // or root
  ReduceOp op = ReduceOp::kSum;
  NcclComm* comm = nullptr;
  int stream = -1;

  bool is_message() const { return kind == Kind::kSend || kind == Kind::kRecv; }
  const NcclMemory& memory() const { return kind == Kind::kRecv ? to : from; }
  auto shape() const { return std::tuple(kind, memory().count, memory().type, op, peer); }
  const char* name() const {
    constexpr const char* kNames[] = {"send", "recv", "all_reduce", "reduce", "broadcast"};
    return kNames[static_cast<int>(kind)];
  }
  std::string Text() const {
    return Str(name(), " of ", Describe(memory()), is_message() ? " with " : " in a group by ",
               Machine::Get().NameOfHost(comm->host));
  }
};

/// Where the ranks of a communicator meet.
struct FakeNccl::Room {
  std::vector<NcclComm*> ends;  // by rank; null until they come
  std::set<std::pair<int, int>>
      called;  // (rank, peer): it has begun a message; peer -1: a collective
  struct Gathering {
    std::shared_ptr<Meeting> meeting;
    std::vector<Call> calls;  // by end
  };
  std::map<std::tuple<int, int, int>, Gathering> messages;  // from, to, number
  std::map<int, Gathering> collectives;

  bool is_connected(int rank, int peer) const {
    if (peer >= 0)
      return rank == peer || (called.count({rank, peer}) > 0 && called.count({peer, rank}) > 0);
    for (int r = 0; r < static_cast<int>(ends.size()); ++r) {
      if (called.count({r, -1}) == 0) return false;
    }
    return true;
  }
};

/// A thread in a function of a communicator.
class FakeNccl::Using {
 public:
  Using(FakeNccl& nccl, NcclComm* comm) : comm_(comm) {
    const auto lock = Machine::Get().Hold();
    const std::string who = Machine::Get().NameOfHost(comm->host);
    if (comm->is_over) nccl.Misuse(Str("the communicator of ", who, " is used after its end"));
    if (++comm->inside > 1) nccl.Misuse(Str("two threads use a communicator of ", who, " at once"));
  }
  ~Using() { --comm_->inside; }

 private:
  NcclComm* comm_;
};

FakeNccl::FakeNccl() = default;
FakeNccl::~FakeNccl() = default;

std::vector<std::string> FakeNccl::misuses() const {
  const auto lock = Machine::Get().Hold();
  return misuses_;
}

void FakeNccl::Misuse(const std::string& what) {
  if (std::ranges::find(misuses_, what) == misuses_.end()) misuses_.push_back(what);
}

NcclResult FakeNccl::NewId(std::string& id) {
  const auto lock = Machine::Get().Hold();
  id = Str("room ", rooms_.size());
  rooms_[id] = std::make_shared<Room>();
  return NcclResult::kDone;
}

NcclResult FakeNccl::Open(NcclComm*& comm, int ranks, const std::string& id, int rank) {
  const int host = Machine::Get().ThisHost();
  const auto lock = Machine::Get().Hold();
  if (group_depth == 0) ++opened_alone_;
  comms_.push_back(std::make_unique<NcclComm>());
  comm = comms_.back().get();
  comm->room = rooms_.at(id);
  comm->rank = rank;
  comm->host = host;
  comm->room->ends.resize(ranks);
  comm->room->ends[rank] = comm;
  return Continue(comm);
}

/// The hosts for whose calls the rank waits.
std::vector<int> FakeNccl::Awaited(const NcclComm* comm) {
  const Room& room = *comm->room;
  std::vector<int> hosts;
  for (const Call& call : comm->calls) {
    const int peer = call.is_message() ? call.peer : -1;
    if (room.is_connected(comm->rank, peer)) continue;
    for (const NcclComm* end : room.ends) {
      const bool is_missing = peer < 0 && end && room.called.count({end->rank, -1}) == 0;
      if (is_missing || (end && peer == end->rank)) hosts.push_back(end->host);
    }
  }
  return hosts;
}

NcclResult FakeNccl::Continue(NcclComm* comm) {
  if (!comm->error.empty()) {
    return comm->peer_is_gone ? NcclResult::kPeerIsGone : NcclResult::kFailed;
  }
  const auto& ends = comm->room->ends;
  const bool is_cut = is_cut_ && ends.size() > 1;
  if (is_cut || std::ranges::count(ends, nullptr) > 0) return NcclResult::kUnderWay;
  if (!comm->calls.empty()) {
    for (const Call& call : comm->calls) {
      if (!comm->room->is_connected(comm->rank, call.is_message() ? call.peer : -1)) {
        return NcclResult::kUnderWay;
      }
    }
    LaunchAll(comm);
    return comm->error.empty() ? NcclResult::kDone : NcclResult::kFailed;
  }
  const auto is_over = [](const auto& meeting) { return meeting->over; };
  if (comm->is_finalized && !std::ranges::all_of(comm->launched, is_over))
    return NcclResult::kUnderWay;
  return NcclResult::kDone;
}

NcclResult FakeNccl::State(NcclComm* comm) {
  const Using in(*this, comm);
  NcclResult result;
  std::string waits;
  {
    const auto lock = Machine::Get().Hold();
    if (group_depth > 0) {
      Misuse(Str("a group was left open by ", Machine::Get().NameOfHost(comm->host)));
    }
    result = Continue(comm);
    if (result == NcclResult::kUnderWay && !comm->calls.empty()) {
      waits = Str("waits for the connection of its ", comm->calls.front().Text());
      if (comm->calls.front().is_message()) {
        waits = Str("waits in ", comm->calls.front().name(), " and its first connection");
      }
    }
  }
  if (result == NcclResult::kUnderWay) {
    Machine::Get().Polls(waits.empty() ? "waits for the others" : waits,
                         [comm] { return Awaited(comm); });
  } else {
    Machine::Get().GoesOn();
  }
  return result;
}

std::string FakeNccl::Why(NcclComm* comm, NcclResult) {
  const auto lock = Machine::Get().Hold();
  return comm ? comm->error : "no communicator";
}

NcclResult FakeNccl::Finalize(NcclComm* comm) {
  const Using in(*this, comm);
  const auto lock = Machine::Get().Hold();
  comm->is_finalized = true;
  return Continue(comm);
}

void FakeNccl::Destroy(NcclComm* comm) {
  const Using in(*this, comm);
  const auto lock = Machine::Get().Hold();
  if (!comm->is_finalized) Misuse("a communicator is destroyed that was not finalized");
  comm->is_over = true;
  ++destroyed_;
}

void FakeNccl::End(NcclComm* comm, const std::string& why_for_others) {
  for (const auto& meeting : comm->launched) {
    if (meeting->over) continue;
    unfinished_.push_back(
        Str(Machine::Get().NameOfHost(comm->host), " ended with ", meeting->name, " unfinished"));
    Machine::Get().Cancel(*meeting);
  }
  for (NcclComm* other : comm->room->ends) {
    if (!other || other == comm || !other->error.empty()) continue;
    other->peer_is_gone = true;
    other->error = why_for_others;
  }
}

void FakeNccl::Abort(NcclComm* comm) {
  const Using in(*this, comm);
  const auto lock = Machine::Get().Hold();
  End(comm, Str(Machine::Get().NameOfHost(comm->host), " has aborted"));
  comm->is_over = true;
  ++aborted_;
}

void FakeNccl::Kill(const std::string& host) {
  const auto lock = Machine::Get().Hold();
  for (const auto& comm : comms_) {
    if (comm->is_over || Machine::Get().NameOfHost(comm->host) != host) continue;
    comm->error = "killed";
    End(comm.get(), Str(host, " is gone"));
  }
}

// Calls

NcclResult FakeNccl::GroupStart() {
  if (group_depth > 0) {  // NCCL allows groups within groups, which nobody here wants
    const int host = Machine::Get().ThisHost();
    const auto lock = Machine::Get().Hold();
    Misuse(Str("a group was left open by ", Machine::Get().NameOfHost(host)));
    return NcclResult::kFailed;
  }
  ++group_depth;
  return NcclResult::kDone;
}

NcclResult FakeNccl::GroupEnd() {
  if (group_depth == 0) {
    const auto lock = Machine::Get().Hold();
    Misuse("a group ends that was not begun");
    return NcclResult::kFailed;
  }
  if (--group_depth > 0) return NcclResult::kDone;
  return Begin(std::exchange(group_calls, {}));
}

NcclResult FakeNccl::Put(Call call) {
  for (const NcclMemory& memory : {call.from, call.to}) {
    if (c10::isComplexType(memory.type)) throw ConfigError("NCCL has no complex numbers");
  }
  if (group_depth == 0) return Begin({std::move(call)});
  group_calls.push_back(std::move(call));
  return NcclResult::kDone;
}

NcclResult FakeNccl::Begin(std::vector<Call> calls) {
  std::vector<NcclComm*> comms;
  for (Call& call : calls) {
    const Using in(*this, call.comm);
    const auto lock = Machine::Get().Hold();
    const std::string who = Machine::Get().NameOfHost(call.comm->host);
    if (call.comm->stream < 0) call.comm->stream = call.stream;
    if (call.comm->stream != call.stream) {
      Misuse(Str("a communicator of ", who, " uses ", Machine::Get().NameOf(call.comm->stream),
                 " and ", Machine::Get().NameOf(call.stream)));
    }
    const auto [owner, is_new] = streams_.try_emplace(call.stream, call.comm);
    if (!is_new && owner->second != call.comm && !owner->second->is_over) {
      Misuse(Str("two communicators of ", who, " use ", Machine::Get().NameOf(call.stream)));
    }
    for (const NcclMemory& memory : {call.from, call.to}) {
      const int device = Machine::Get().StreamOf(call.stream).device_index();
      if (memory.begin && !Machine::Get().IsOn(device, memory.begin, Bytes(memory))) {
        Misuse(Str(call.Text(), ": the memory is not on shadow:", device));
        return NcclResult::kFailed;
      }
    }
    if (std::ranges::find(comms, call.comm) == comms.end()) {
      if (!call.comm->calls.empty()) Misuse(Str(who, " calls a communicator that is under way"));
      comms.push_back(call.comm);
    }
    call.comm->room->called.insert({call.comm->rank, call.is_message() ? call.peer : -1});
    call.comm->calls.push_back(call);
  }
  NcclResult all = NcclResult::kDone;
  for (NcclComm* comm : comms) {
    const auto lock = Machine::Get().Hold();
    all = std::max(all, Continue(comm));
  }
  return all;
}

/// The end of a meeting that the call is.
std::pair<std::shared_ptr<Meeting>, int> FakeNccl::Join(const Call& call) {
  NcclComm* comm = call.comm;
  Room& room = *comm->room;
  const bool sends = call.kind == Call::Kind::kSend;
  Room::Gathering* gathering;
  std::vector<int> ranks;
  int end = comm->rank;
  if (call.is_message()) {
    const int from = sends ? comm->rank : call.peer, to = sends ? call.peer : comm->rank;
    const int number = sends ? comm->sent[to]++ : comm->received[from]++;
    gathering = &room.messages[{from, to, number}];
    ranks = {from, to};
    end = sends ? 0 : 1;
  } else {
    gathering = &room.collectives[comm->collectives++];
    for (int r = 0; r < static_cast<int>(room.ends.size()); ++r) ranks.push_back(r);
  }
  if (!gathering->meeting) {
    gathering->meeting = std::make_shared<Meeting>();
    gathering->meeting->ends.resize(ranks.size());
    gathering->calls.resize(ranks.size());
    for (size_t i = 0; i < ranks.size(); ++i) {
      gathering->meeting->ends[i].host = room.ends[ranks[i]]->host;
    }
    gathering->meeting->name =
        call.is_message()
            ? Str("a message from ", Machine::Get().NameOfHost(gathering->meeting->ends[0].host),
                  " to ", Machine::Get().NameOfHost(gathering->meeting->ends[1].host))
            : Str("a ", call.name(), " among ", ranks.size());
  }
  const std::shared_ptr<Meeting> meeting = gathering->meeting;
  for (const Call& other : gathering->calls) {
    if (other.comm == nullptr) continue;
    const bool fits = call.is_message() ? other.memory().count == call.memory().count &&
                                              other.memory().type == call.memory().type
                                        : other.shape() == call.shape();
    if (!fits) {
      comm->error = Str(call.Text(), " meets ", other.Text());
      Misuse(comm->error);
    }
  }
  gathering->calls[end] = call;
  const auto uses = [&](const NcclMemory& memory, bool writes) {
    if (!memory.begin) return;
    meeting->ends[end].uses.push_back(
        {static_cast<const std::byte*>(memory.begin), Bytes(memory), writes, Describe(memory)});
  };
  uses(call.from, false);
  uses(call.to, true);
  if (call.is_message()) {
    if (gathering->calls[0].comm && gathering->calls[1].comm && comm->error.empty()) {
      meeting->happen = [from = gathering->calls[0].from, to = gathering->calls[1].to] {
        Move(from, to.begin);
      };
    }
  } else if (comm->error.empty()) {
    meeting->happen = [calls = &gathering->calls] {
      const Call& first = calls->front();
      if (first.kind == Call::Kind::kBroadcast) {
        for (const Call& each : *calls) Move((*calls)[first.peer].from, each.to.begin);
        return;
      }
      std::vector<at::Tensor> inputs;
      for (const Call& each : *calls) inputs.push_back(Numbers(each.from));
      const at::Tensor result = Combined(inputs, first.op);
      for (const Call& each : *calls) {
        if (each.to.begin) Numbers(each.to).copy_(result);
      }
    };
  }
  return {meeting, end};
}

/// The calls that were made together, each stream's as one.
void FakeNccl::LaunchAll(NcclComm* comm) {
  std::map<int, std::vector<std::pair<std::shared_ptr<Meeting>, int>>> by_stream;
  for (const Call& call : std::exchange(comm->calls, {})) {
    const auto end = Join(call);
    if (!comm->error.empty()) return;
    comm->launched.push_back(end.first);
    by_stream[call.stream].push_back(end);
  }
  for (const auto& [stream, ends] : by_stream) Machine::Get().Launch(stream, ends);
  std::erase_if(comm->launched, [](const auto& meeting) { return meeting->over; });
}

NcclResult FakeNccl::Send(NcclMemory from, int peer, NcclComm* comm, c10::Stream stream) {
  return Put({Call::Kind::kSend, from, {}, peer, {}, comm, Machine::Get().NumberOf(stream)});
}

NcclResult FakeNccl::Recv(NcclMemory to, int peer, NcclComm* comm, c10::Stream stream) {
  return Put({Call::Kind::kRecv, {}, to, peer, {}, comm, Machine::Get().NumberOf(stream)});
}

NcclResult FakeNccl::AllReduce(NcclMemory from, void* to, ReduceOp op, NcclComm* comm,
                               c10::Stream stream) {
  return Put({Call::Kind::kAllReduce,
              from,
              {to, from.count, from.type},
              -1,
              op,
              comm,
              Machine::Get().NumberOf(stream)});
}

NcclResult FakeNccl::Reduce(NcclMemory from, void* to, ReduceOp op, int root, NcclComm* comm,
                            c10::Stream stream) {
  void* const at_root = comm->rank == root ? to : nullptr;
  return Put({Call::Kind::kReduce,
              from,
              {at_root, from.count, from.type},
              root,
              op,
              comm,
              Machine::Get().NumberOf(stream)});
}

NcclResult FakeNccl::Broadcast(NcclMemory from, void* to, int root, NcclComm* comm,
                               c10::Stream stream) {
  const NcclMemory read = {comm->rank == root ? from.begin : nullptr, from.count, from.type};
  return Put({Call::Kind::kBroadcast,
              read,
              {to, from.count, from.type},
              root,
              {},
              comm,
              Machine::Get().NumberOf(stream)});
}

}  // namespace strata::shadow
