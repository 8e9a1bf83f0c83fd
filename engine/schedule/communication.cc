// AddCommunication: see lowering.h.
//
// The pass runs all rows at once. A rank in the gap before its next action waits first for the
// messages that the action reads, then for the readers of the messages that it gave itself. A
// message moves when its reader waits for it: at that moment its SEND is appended to the sender's
// row and its RECV to the reader's. So all moves happen one after another in an order that every
// row keeps, and no rank can wait for ever, even when sends block. When all ranks wait, one rank
// that waits only for its readers is released: its messages move at once, before their readers need
// them. The time is linear in the number of actions.
#include <algorithm>
#include <deque>
#include <optional>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/schedule/checker.h"
#include "engine/schedule/links.h"
#include "engine/schedule/lowering.h"

namespace strata::schedule {
namespace {

class CommunicationPass {
 public:
  // REQUIRES: program.has_places().
  explicit CommunicationPass(const Program& program)
      : program_(program),
        links_(program),
        queues_(links_.size()),
        ranks_(program.ranks()),
        states_(program, kAbsent) {
    for (int link = 0; link < links_.size(); ++link) {
      ranks_[links_[link].from].links.push_back(link);
    }
  }

  // Returns false if the ranks wait for each other or a message finds no reader.
  bool Run() {
    for (int r = 0; r < program_.ranks(); ++r) {
      ranks_[r].lowered.reserve(3 * program_.rows[r].size());
      EnterGap(r);
    }
    do {
      while (const auto rank = Pop(ready_)) Act(*rank);
    } while (RelieveOne());
    return std::all_of(ranks_.begin(), ranks_.end(),
                       [](const Rank& rank) { return rank.is_finished && rank.unsent == 0; });
  }

  // The lowered rows, after Run().
  std::vector<std::vector<Action>> TakeRows() {
    std::vector<std::vector<Action>> rows;
    for (Rank& rank : ranks_) rows.push_back(std::move(rank.lowered));
    return rows;
  }

 private:
  enum State : uint8_t { kAbsent, kGiven, kMoved };

  struct Queue {
    std::deque<Message> given;  // given and not yet moved, oldest first
    Message awaited;  // the message that the receiving rank waits for in its gap; stage -1: none
  };

  struct Rank {
    size_t next = 0;  // the position in its row of the program
    int absent = 0;   // the number of messages that the next action reads and nobody has given
    int unsent = 0;   // the number of messages that it gave and nobody has read
    bool is_in_gap = false;
    bool is_postponed = false;  // it is in postponed_, perhaps from an earlier gap
    bool is_finished = false;
    std::vector<int> links;  // the links on which it sends
    std::vector<Action> lowered;
  };

  void EnterGap(int r) {
    Rank& rank = ranks_[r];
    const auto& row = program_.rows[r];
    while (rank.next < row.size() && row[rank.next].kind == Kind::kIdle) ++rank.next;
    rank.is_finished = rank.next == row.size();
    if (rank.is_finished) return;
    for (const Action& part : ActionParts(row[rank.next])) {
      if (PassesMessages(part.kind)) Await(rank, ReadBy(part));
    }
    rank.is_in_gap = true;
    GoOnIfReady(r);
  }

  void Await(Rank& rank, const Message& message) {
    const int link = links_.Of(message);
    if (link < 0 || states_[message] == kMoved) return;
    if (states_[message] == kGiven) return MoveUpTo(link, message);
    queues_[link].awaited = message;
    ++rank.absent;
  }

  // Lets a rank in its gap go on if nothing is left to wait for. Called when something that it
  // waits for has happened.
  void GoOnIfReady(int r) {
    Rank& rank = ranks_[r];
    if (!rank.is_in_gap || rank.absent > 0) return;
    if (rank.unsent == 0) {
      ready_.push_back(r);
    } else if (!rank.is_postponed) {
      rank.is_postponed = true;
      postponed_.push_back(r);
    }
  }

  // Moves the messages of one rank that waits for its readers only. Returns false if there is no
  // such rank.
  bool RelieveOne() {
    while (const auto r = Pop(postponed_)) {
      Rank& rank = ranks_[*r];
      rank.is_postponed = false;
      if (!rank.is_in_gap || rank.absent > 0 || rank.unsent == 0) continue;
      for (int link : rank.links) {
        if (!queues_[link].given.empty()) MoveUpTo(link, queues_[link].given.back());
      }
      return true;
    }
    return false;
  }

  static std::optional<int> Pop(std::deque<int>& ranks) {
    if (ranks.empty()) return std::nullopt;
    const int rank = ranks.front();
    ranks.pop_front();
    return rank;
  }

  void Act(int r) {
    Rank& rank = ranks_[r];
    const Action action = program_.rows[r][rank.next++];
    rank.is_in_gap = false;
    rank.lowered.push_back(action);
    for (const Action& part : ActionParts(action)) {
      if (PassesMessages(part.kind)) Give(rank, GivenBy(part));
    }
    EnterGap(r);
  }

  void Give(Rank& rank, const Message& message) {
    const int link = links_.Of(message);
    if (link < 0 || states_[message] != kAbsent) return;
    states_[message] = kGiven;
    Queue& queue = queues_[link];
    queue.given.push_back(message);
    ++rank.unsent;
    if (queue.awaited != message) return;
    queue.awaited = Message();
    MoveUpTo(link, message);
    --ranks_[links_[link].to].absent;
    GoOnIfReady(links_[link].to);
  }

  // Moves the messages of the link up to `message`, oldest first. REQUIRES: `message` is given.
  void MoveUpTo(int link, const Message message) {
    auto& given = queues_[link].given;
    Rank& sender = ranks_[links_[link].from];
    Rank& reader = ranks_[links_[link].to];
    while (states_[message] != kMoved) {
      sender.lowered.push_back(SendOf(given.front()));
      reader.lowered.push_back(RecvOf(given.front()));
      states_[given.front()] = kMoved;
      --sender.unsent;
      given.pop_front();
    }
    if (sender.unsent == 0) GoOnIfReady(links_[link].from);
  }

  const Program& program_;
  const Links links_;
  std::vector<Queue> queues_;  // by link
  std::vector<Rank> ranks_;
  PerMessage<State> states_;
  std::deque<int> ready_;
  std::deque<int> postponed_;  // ranks that wait for the readers of their messages only
};

Program WithoutRows(const Program& program) {
  return {program.name, program.stage_ranks, program.micro_batches, program.is_training, {}};
}

}  // namespace

Program AddCommunication(const Program& program) {
  if (!program.has_places()) CheckOrThrow(program);
  if (HasCommunication(program)) return WithoutIdle(program);
  CommunicationPass pass(program);
  if (!pass.Run()) {
    CheckOrThrow(program);
    STRATA_CHECK(false) << "a right program cannot be lowered:\n" << ToCsv(program);
  }
  Program lowered = WithoutRows(program);
  lowered.rows = pass.TakeRows();
  return lowered;
}

}  // namespace strata::schedule
