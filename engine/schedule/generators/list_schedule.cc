#include "engine/schedule/generators/list_schedule.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <queue>
#include <utility>

#include "engine/base/check.h"
#include "engine/schedule/links.h"

namespace strata::schedule {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

/// Simulates the ranks by events. An event (time, rank) asks a rank what it can start: when one of
/// its actions has ended, or when a message for it has arrived. A free rank starts the F or I that
/// the rules or the given order choose, else its oldest W that is due, else it waits for the next
/// event. An action that starts fixes the arrival of the message that it gives. Every action causes
/// at most three events, so with A actions and v stages per rank the time is O(A * (v + log A)).
class Lister {
 public:
  Lister(Program program, const Costs& costs, const ListRules& rules)
      : program_(std::move(program)),
        costs_(costs),
        rules_(rules),
        ranks_(program_.ranks()),
        stages_(program_.stages()),
        inputs_(Messages(0)),
        gradients_(Messages(program_.is_training ? program_.last_stage() : -1)) {
    for (int s = 0; s < program_.stages(); ++s) RankOf(s).stages.push_back(s);
    for (int r = 0; r < program_.ranks(); ++r) TakeOrder(program_.rows[r], ranks_[r].order);
  }

  Program Run() {
    for (int r = 0; r < program_.ranks(); ++r) Wake(0, r);
    while (!wakes_.empty()) {
      const auto [now, r] = wakes_.top();
      wakes_.pop();
      if (now >= ranks_[r].free_at) Act(now, r);
    }
    for (const Rank& rank : ranks_) {
      STRATA_CHECK(rank.next >= rank.order.size())
          << program_.name << " needs more memory than " << rules_.memory;
    }
    return std::move(program_);
  }

 private:
  struct Stage {
    int forwards = 0;   // the number of F started
    int backwards = 0;  // the number of I started
  };

  struct Rank {
    std::vector<int> stages;    // the rank's stages, ascending
    std::vector<Action> order;  // the given order of F and I; empty: free choice
    size_t next = 0;            // the position in `order`
    std::vector<Action> owed;   // all W that have become due, oldest first
    size_t paid = 0;            // the number of them that have run
    int reserved = 0;           // pairs that are alive or, without an order, have memory reserved
    double free_at = 0;
  };

  static void TakeOrder(std::vector<Action>& row, std::vector<Action>& order) {
    for (const Action& action : std::exchange(row, {})) {
      if (PassesMessages(action.kind)) order.push_back(action);
    }
  }

  /// A table of arrival times by stage and micro-batch. Messages to the stage `end` arrive at time
  /// 0, all others are unknown; -1: no such stage.
  std::vector<std::vector<double>> Messages(int end) const {
    std::vector<std::vector<double>> arrivals(
        static_cast<size_t>(program_.stages()),
        std::vector<double>(static_cast<size_t>(program_.micro_batches), kNever));
    if (end >= 0) std::ranges::fill(arrivals[end], 0.0);
    return arrivals;
  }

  Rank& RankOf(int stage) { return ranks_[program_.stage_ranks[stage]]; }
  void Wake(double when, int r) { wakes_.emplace(when, r); }

  /// The time from which the next F of the stage can run, as far as is known; kNever if that is
  /// unknown or memory is missing.
  double ForwardAt(const Rank& rank, int s) const {
    const int m = stages_[s].forwards;
    if (m == program_.micro_batches) return kNever;
    return rank.reserved + Needs(rank, s) > rules_.memory ? kNever : inputs_[s][m];
  }

  /// The number of pairs for which an F of the stage reserves memory.
  static int Needs(const Rank& rank, int s) {
    if (!rank.order.empty()) return 1;
    return s == rank.stages.front() ? static_cast<int>(rank.stages.size()) : 0;
  }

  double BackwardAt(int s) const {
    const int m = stages_[s].backwards;
    return m < finished_forwards(s) ? gradients_[s][m] : kNever;
  }

  // All F that a free rank has started are finished, so the number of started ones is used.
  int finished_forwards(int s) const { return stages_[s].forwards; }

  /// Returns the preferred stage whose time when(s) has come, else -1. Lowers `next` to the
  /// earliest later time.
  template <class When>
  int Choose(const Rank& rank, bool deepest, double now, double& next, const When& when) const {
    int chosen = -1;
    for (int s : rank.stages) {
      const double time = when(s);
      if (time > now) {
        next = std::min(next, time);
      } else if (chosen < 0 || deepest) {
        chosen = s;
      }
    }
    return chosen;
  }

  /// Starts an F or I if one can run and returns true. Otherwise sets `next` to the time when one
  /// can.
  bool StartNext(double now, int r, double& next) {
    const Rank& rank = ranks_[r];
    const auto backward_at = [&](int s) { return BackwardAt(s); };
    const auto forward_at = [&](int s) { return ForwardAt(rank, s); };
    int back = -1, forward = -1;
    if (rank.order.empty()) {
      back = Choose(rank, rules_.deepest_backward, now, next, backward_at);
      if (back < 0) forward = Choose(rank, rules_.deepest_forward, now, next, forward_at);
    } else if (rank.next < rank.order.size()) {
      const Action& action = rank.order[rank.next];
      const bool is_forward = action.kind == Kind::kForward;
      next = is_forward ? forward_at(action.stage) : backward_at(action.stage);
      if (next <= now) (is_forward ? forward : back) = action.stage;
    }
    if (back >= 0) Backward(now, r, back);
    if (forward >= 0) Forward(now, r, forward);
    return back >= 0 || forward >= 0;
  }

  void Act(double now, int r) {
    Rank& rank = ranks_[r];
    double next = kNever;
    if (StartNext(now, r, next)) {
      ++rank.next;
      return;
    }
    if (rank.paid < rank.owed.size()) {
      const Action action = rank.owed[rank.paid];
      const double cost = CostAt(costs_.weight_grad, action.stage);
      if (next <= now + rules_.patience * cost) return Wake(next, r);
      ++rank.paid;
      --rank.reserved;
      return Occupy(now + cost, r, action);
    }
    // Nothing can run. The rank that gives something to this one wakes it (Give()).
  }

  void Forward(double now, int r, int s) {
    Rank& rank = ranks_[r];
    const int m = stages_[s].forwards++;
    rank.reserved += Needs(rank, s);
    const double end = now + CostAt(costs_.forward, s);
    Occupy(end, r, MakeAction(s, Kind::kForward, m));
    if (s < program_.last_stage()) Give(inputs_, s, s + 1, m, end);
  }

  void Backward(double now, int r, int s) {
    const int m = stages_[s].backwards++;
    const double end = now + CostAt(costs_.input_grad, s);
    ranks_[r].owed.push_back(MakeAction(s, Kind::kWeightGrad, m));
    Occupy(end, r, MakeAction(s, Kind::kInputGrad, m));
    if (s > 0) Give(gradients_, s, s - 1, m, end);
  }

  void Give(std::vector<std::vector<double>>& messages, int from, int to, int m, double end) {
    const int r = program_.stage_ranks[to];
    const int lower = std::min(from, to);
    const double arrival =
        r == program_.stage_ranks[from]
            ? end
            : end + costs_.comm + CostAt(costs_.latency, lower) + CostAt(costs_.transfer, lower);
    messages[to][m] = arrival;
    Wake(std::max(arrival, ranks_[r].free_at), r);
  }

  void Occupy(double until, int r, const Action& action) {
    program_.rows[r].push_back(action);
    ranks_[r].free_at = until;
    Wake(until, r);
  }

  Program program_;
  const Costs& costs_;
  const ListRules& rules_;
  std::vector<Rank> ranks_;
  std::vector<Stage> stages_;
  std::vector<std::vector<double>> inputs_;     // arrival of inputs, by stage and micro-batch
  std::vector<std::vector<double>> gradients_;  // arrival of output gradients
  using Event = std::pair<double, int>;         // time, rank
  std::priority_queue<Event, std::vector<Event>, std::greater<>> wakes_;
};

}  // namespace

Program ListSchedule(Program program, const Costs& costs, const ListRules& rules) {
  return Lister(std::move(program), costs, rules).Run();
}

}  // namespace strata::schedule
