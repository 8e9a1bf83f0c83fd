// Proofs 4 and 5, which compare rows with each other. Proof 4 compares the k-th send of every link
// with its k-th receive. Proof 5 runs all rows at once: a rank goes on until its next action has to
// wait and is then parked at the link that it waits for; the action that ends the wait wakes it. If
// some rank has not finished when no rank can go on, they wait for each other, and the cycle is
// shown. The time is linear in the number of actions, since each is tried at most three times.
#include <algorithm>
#include <optional>

#include "engine/base/text.h"
#include "engine/schedule/checks.h"
#include "engine/schedule/links.h"

namespace strata::schedule {
namespace {

// The number of ranks of a cycle that an explanation shows.
constexpr int kShownWaits = 8;

// Runs all rows at once. A row stops where its next action has to wait; the awaited event wakes it.
// Every action is tried at most three times, since an overlap may wait for two messages.
class ProgressCheck {
 public:
  explicit ProgressCheck(const CheckContext& context)
      : context_(context),
        program_(context.program),
        links_(program_),
        ranks_(program_.ranks()),
        parked_(links_.size()),
        given_(program_, false) {
    for (const auto& row : program_.rows) tied_ += std::count_if(row.begin(), row.end(), IsTied);
  }

  void Run() {
    for (int r = program_.ranks() - 1; r >= 0; --r) ready_.push_back(r);
    while (!ready_.empty()) {
      const int r = ready_.back();
      ready_.pop_back();
      RunRow(r);
    }
    const auto stuck = std::find_if(ranks_.begin(), ranks_.end(), [&](const Rank& rank) {
      return rank.next < program_.rows[&rank - ranks_.data()].size();
    });
    if (stuck != ranks_.end()) Explain(static_cast<int>(stuck - ranks_.begin()));
  }

 private:
  struct Rank {
    size_t next = 0;
    bool is_in_tied =
        false;  // its last action was a REDUCE_TIED, which may still wait for other ranks
  };

  // Whether the sender or the reader waits at a link: in a lowered program at a SEND or RECV, in a
  // compute-only program the reader for the message `awaited`.
  struct Parked {
    bool sender = false;
    bool reader = false;
    Message awaited;
  };

  static bool IsTied(const Action& action) { return action.kind == Kind::kReduceTied; }

  void RunRow(int r) {
    Rank& rank = ranks_[r];
    const auto& row = program_.rows[r];
    while (rank.next < row.size() && Pass(r, rank, row[rank.next])) ++rank.next;
  }

  // Returns true if the action is done. Otherwise the rank is parked, or waits in a REDUCE_TIED.
  bool Pass(int r, Rank& rank, const Action& action) {
    if (IsTied(action)) return PassTied(rank);
    if (rank.is_in_tied && arrived_ < tied_) {
      tied_waiters_.push_back(r);
      return false;
    }
    rank.is_in_tied = false;
    if (IsCommunication(action.kind)) return PassCommunication(action);
    if (!context_.is_lowered && IsCompute(action.kind)) return PassCompute(action);
    return true;
  }

  bool PassTied(Rank& rank) {
    rank.is_in_tied = true;
    if (++arrived_ == tied_)
      ready_.insert(ready_.end(), tied_waiters_.begin(), tied_waiters_.end());
    return true;
  }

  // A SEND and its RECV meet: the rank that comes first parks; the one that comes second takes both
  // ranks past the message.
  bool PassCommunication(const Action& action) {
    const int link = links_.Of(MovedBy(action));
    Parked& parked = parked_[link];
    const bool is_send = IsSend(action.kind);
    bool& other = is_send ? parked.reader : parked.sender;
    if (!other) {
      (is_send ? parked.sender : parked.reader) = true;
      return false;
    }
    other = false;
    const int other_rank = is_send ? links_[link].to : links_[link].from;
    ++ranks_[other_rank].next;
    ready_.push_back(other_rank);
    return true;
  }

  bool PassCompute(const Action& action) {
    for (const Action& part : ActionParts(action)) {
      if (const auto message = AbsentFor(part)) {
        Parked& parked = parked_[links_.Of(*message)];
        parked.reader = true;
        parked.awaited = *message;
        return false;
      }
    }
    for (const Action& part : ActionParts(action)) {
      if (PassesMessages(part.kind)) Give(GivenBy(part));
    }
    return true;
  }

  // The message from another rank that F, I or B reads and that has not been given yet; empty if
  // there is none.
  std::optional<Message> AbsentFor(const Action& part) const {
    if (!PassesMessages(part.kind)) return std::nullopt;
    const Message message = ReadBy(part);
    if (links_.Of(message) < 0 || given_[message]) return std::nullopt;
    return message;
  }

  void Give(const Message& message) {
    const int link = links_.Of(message);
    if (link < 0) return;
    given_[message] = true;
    Parked& parked = parked_[link];
    if (!parked.reader || parked.awaited != message) return;
    parked.reader = false;
    ready_.push_back(links_[link].to);
  }

  // The rank for which the parked rank `r` waits, and the action there that would end the wait.
  struct Wait {
    int rank;
    std::string what;
  };

  Wait WaitOf(int r) const {
    const Action& action = program_.rows[r][ranks_[r].next];
    if (ranks_[r].is_in_tied) return {RankBeforeTied(), "its REDUCE_TIED"};
    if (IsCommunication(action.kind)) {
      const Message message = MovedBy(action);
      const auto& link = links_[links_.Of(message)];
      const bool is_send = IsSend(action.kind);
      return {is_send ? link.to : link.from, Str(is_send ? RecvOf(message) : SendOf(message))};
    }
    return WaitOfCompute(action);
  }

  Wait WaitOfCompute(const Action& action) const {
    const ActionParts parts(action);
    const Action& waiting = AbsentFor(*parts.begin()) ? *parts.begin() : parts.end()[-1];
    const Message message = ReadBy(waiting);
    const int sender = SenderOf(message.direction, message.stage);
    const bool is_forward = message.direction == Direction::kForward;
    const Action giver =
        MakeAction(sender, is_forward ? Kind::kForward : Kind::kBackward, message.micro_batch);
    return {program_.stage_ranks[sender], Str(giver, is_forward ? "" : " or I")};
  }

  // A rank that has not reached all of its REDUCE_TIED.
  int RankBeforeTied() const {
    for (int r = 0; r < program_.ranks(); ++r) {
      const auto& row = program_.rows[r];
      if (std::any_of(row.begin() + ranks_[r].next, row.end(), IsTied)) return r;
    }
    return 0;
  }

  std::string Shown(int r, int other, const std::string& what) const {
    const auto& row = program_.rows[r];
    const int position = static_cast<int>(ranks_[r].next);
    return Str("\n  rank ", r, " at ", row[position], " waits until rank ", other, " comes to ",
               what, ": ", ShowRow(row, position, 60));
  }

  // Follows the waits from a stuck rank until a rank comes twice, and reports the cycle.
  void Explain(int stuck) {
    std::vector<bool> seen(program_.ranks(), false);
    int r = stuck;
    while (!seen[r]) {
      seen[r] = true;
      r = WaitOf(r).rank;
    }
    const int first = r;
    std::string circle;
    int length = 0;
    do {
      const auto [rank, what] = WaitOf(r);
      if (length++ < kShownWaits) circle += Shown(r, rank, what);
      r = rank;
    } while (r != first);
    if (length > kShownWaits) circle += Str("\n  and ", length - kShownWaits, " ranks more");
    const int position = static_cast<int>(ranks_[first].next);
    const std::string action = ToText(program_.rows[first][position]);
    context_.result.problems.push_back(
        {first, position, action,
         Str("rank ", first, ", action ", position, ": ", action,
             " waits for ever; these ranks wait for each other", circle)});
  }

  const CheckContext& context_;
  const Program& program_;
  const Links links_;
  std::vector<Rank> ranks_;
  std::vector<Parked> parked_;  // by link
  PerMessage<bool> given_;      // used for compute-only programs
  std::vector<int> ready_;
  int64_t tied_ = 0;     // the number of REDUCE_TIED in the program
  int64_t arrived_ = 0;  // the number of them that ranks have reached
  std::vector<int> tied_waiters_;
};

// The positions of the sends on each link, in order.
std::vector<std::vector<int>> SendsByLink(const Program& program, const Links& links) {
  std::vector<std::vector<int>> sends(links.size());
  for (const auto& row : program.rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      if (IsSend(row[i].kind)) sends[links.Of(MovedBy(row[i]))].push_back(static_cast<int>(i));
    }
  }
  return sends;
}

}  // namespace

void CheckLinks(const CheckContext& context) {
  const Program& program = context.program;
  const Links links(program);
  const auto sends = SendsByLink(program, links);
  std::vector<size_t> received(links.size(), 0);
  std::vector<bool> is_wrong(links.size(), false);
  for (int rank = 0; rank < program.ranks(); ++rank) {
    for (size_t i = 0; i < program.rows[rank].size(); ++i) {
      const Action& recv = program.rows[rank][i];
      if (!IsCommunication(recv.kind) || IsSend(recv.kind)) continue;
      const int link = links.Of(MovedBy(recv));
      const size_t number = received[link]++;
      const auto& sender = program.rows[links[link].from];
      const int position = sends[link][number];
      if (is_wrong[link] || MovedBy(sender[position]) == MovedBy(recv)) continue;
      is_wrong[link] = true;
      context.Refuse(rank, static_cast<int>(i),
                     Str("is number ", number, " on its link, but there rank ", links[link].from,
                         " sends ", sender[position], ": ", ShowRow(sender, position)));
    }
  }
}

void CheckProgress(const CheckContext& context) { ProgressCheck(context).Run(); }

}  // namespace strata::schedule
