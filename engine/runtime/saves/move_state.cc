// Every rank gathers what all ranks have and want (lists of ranges of boxes). From these lists each
// rank computes the same list of moves and carries out those that concern it, in the order of the
// list. The cost is one message per move; a range is sent to each rank that wants it, and no rank
// sends what the receiver already has.
#include "engine/runtime/saves/move_state.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/text.h"
#include "engine/base/value.h"
#include "engine/comm/group.h"

namespace strata {
namespace {

std::string BoxOf(const StateTensor& tensor) {
  return Str(tensor.name, " ", Join(tensor.slice.offset, ","), " ", Join(tensor.slice.shape, ","));
}

/// The ranges of the tensors, each once, although stages of this rank may share one.
std::vector<StateRange> RangesOf(const std::vector<StateTensor>& tensors) {
  std::vector<StateRange> ranges;
  std::set<std::string> known;
  for (const StateTensor& tensor : tensors) {
    const Slice& slice = tensor.slice;
    StateRange range = {BoxOf(tensor), slice.begin, slice.begin + slice.count};
    if (slice.count == 0 || !known.insert(Str(range.box, " ", range.begin, " ", range.end)).second)
      continue;
    ranges.push_back(std::move(range));
  }
  return ranges;
}

Value ToValue(const std::vector<StateRange>& ranges) {
  Value::List list;
  for (const auto& [box, begin, end] : ranges) list.push_back(Value::List{box, begin, end});
  return list;
}

std::vector<StateRange> RangesOf(const Value& value) {
  std::vector<StateRange> ranges;
  for (const Value& entry : value.as_list()) {
    const Value::List& fields = entry.as_list();
    ranges.push_back({fields[0].as_string(), fields[1].as_int(), fields[2].as_int()});
  }
  return ranges;
}

/// Finds the memory of a range by its box.
class Memory {
 public:
  explicit Memory(const std::vector<StateTensor>& tensors) {
    for (const StateTensor& tensor : tensors) tensors_[BoxOf(tensor)].push_back(&tensor);
  }

  /// The elements of a range, in every tensor that has them. A box can be there twice if the tensor
  /// is tied.
  std::vector<at::Tensor> Of(const StateRange& range) const {
    std::vector<at::Tensor> found;
    for (const StateTensor* tensor : tensors_.at(range.box)) {
      const int64_t begin = range.begin - tensor->slice.begin;
      const int64_t count = range.end - range.begin;
      if (begin < 0 || begin + count > tensor->slice.count) continue;
      found.push_back(tensor->memory.narrow(0, begin, count));
    }
    STRATA_CHECK(!found.empty()) << "no memory of " << range.box;
    return found;
  }

 private:
  std::map<std::string, std::vector<const StateTensor*>> tensors_;
};

/// A rank and the range of a box that it has.
struct Owner {
  int rank;
  int64_t begin, end;
};

/// Finds the owners of ranges.
class Finder {
 public:
  Finder(const std::vector<std::vector<StateRange>>& has, const std::function<bool(int, int)>& near)
      : near_(near) {
    for (size_t rank = 0; rank < has.size(); ++rank) {
      for (const auto& [box, begin, end] : has[rank]) {
        owners_[box].push_back({static_cast<int>(rank), begin, end});
      }
    }
  }

  void Find(int rank, StateRange wanted, std::vector<StateMove>& moves) const {
    while (wanted.begin < wanted.end) {
      const Owner& owner = OwnerOf(wanted, rank);
      const int64_t end = std::min(wanted.end, owner.end);
      moves.push_back({owner.rank, rank, {wanted.box, wanted.begin, end}});
      wanted.begin = end;
    }
  }

 private:
  /// The owner that sends the first element of `wanted` to `rank`.
  const Owner& OwnerOf(const StateRange& wanted, int rank) const {
    const auto distance = [&](const Owner& owner) {
      if (owner.rank == rank) return 0;
      return near_(owner.rank, rank) ? 1 : 2;
    };
    const Owner* best = nullptr;
    const auto found = owners_.find(wanted.box);
    STRATA_CHECK(found != owners_.end()) << "nobody has " << wanted.box;
    for (const Owner& owner : found->second) {
      if (owner.begin > wanted.begin || wanted.begin >= owner.end) continue;
      if (!best || distance(owner) < distance(*best)) best = &owner;
    }
    STRATA_CHECK(best) << "nobody has element " << wanted.begin << " of " << wanted.box;
    return *best;
  }

  const std::function<bool(int, int)>& near_;
  std::map<std::string, std::vector<Owner>> owners_;
};

}  // namespace

std::vector<StateMove> MovesOf(const std::vector<std::vector<StateRange>>& has,
                               const std::vector<std::vector<StateRange>>& wants,
                               const std::function<bool(int, int)>& near) {
  const Finder finder(has, near);
  std::vector<StateMove> moves;
  for (size_t rank = 0; rank < wants.size(); ++rank) {
    for (const StateRange& wanted : wants[rank]) {
      finder.Find(static_cast<int>(rank), wanted, moves);
    }
  }
  return moves;
}

int64_t MoveState(const std::vector<StateTensor>& state_before,
                  const std::vector<StateTensor>& state_now,
                  const std::function<bool(int, int)>& near, Transport& transport) {
  const at::NoGradGuard no_grad;
  const std::vector<StateTensor> before = InMemory(state_before), now = InMemory(state_now);
  std::vector<std::vector<StateRange>> has, wants;
  const Value mine =
      Value::MakeMap({{"has", ToValue(RangesOf(before))}, {"wants", ToValue(RangesOf(now))}});
  for (const std::string& text : transport.Gather(mine.ToJson())) {
    const Value of_rank = Value::FromJson(text);
    has.push_back(RangesOf(of_rank["has"]));
    wants.push_back(RangesOf(of_rank["wants"]));
  }
  const int rank = transport.rank();
  const Memory from(before), to(now);
  Group* const group = transport.FindGroup("world");
  int64_t bytes = 0;
  // All ranks go through the moves in the same order, so there is no deadlock: for the first move
  // that is not done, both ends are waiting.
  for (const StateMove& move : MovesOf(has, wants, near)) {
    if (move.from == rank && move.to == rank) {
      for (const at::Tensor& memory : to.Of(move.range)) memory.copy_(from.Of(move.range)[0]);
    } else if (move.from == rank) {
      group->Send(from.Of(move.range)[0], move.to);
    } else if (move.to == rank) {
      const std::vector<at::Tensor> memory = to.Of(move.range);
      group->Recv(memory[0], move.from);
      for (size_t i = 1; i < memory.size(); ++i) memory[i].copy_(memory[0]);
      bytes += static_cast<int64_t>(memory[0].nbytes());
    }
  }
  return static_cast<int64_t>(transport.AllReduceSum({static_cast<double>(bytes)})[0]);
}

}  // namespace strata
