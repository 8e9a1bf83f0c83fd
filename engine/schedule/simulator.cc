#include "engine/schedule/simulator.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <optional>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/schedule/checker.h"
#include "engine/schedule/lifetimes.h"
#include "engine/schedule/links.h"

namespace strata::schedule {
namespace {

// The costs of all kinds and stages, with defaults filled in.
class CostTable {
 public:
  CostTable(const Costs& costs, int stages) : stages_(stages) {
    Set(Kind::kForward, "F", costs.forward);
    Set(Kind::kInputGrad, "I", costs.input_grad);
    Set(Kind::kWeightGrad, "W", costs.weight_grad);
    Set(Kind::kBackward, "B",
        costs.backward.empty() ? Sum(Kind::kInputGrad, Kind::kWeightGrad) : costs.backward);
    Set(Kind::kRecompute, "R", costs.recompute.empty() ? costs.forward : costs.recompute);
    AddToEach("action", costs.action);
    action_ = costs.action;
    if (!costs.overlap.empty()) Set(Kind::kOverlap, "overlap", costs.overlap);
    Set(Kind::kReduceTied, "reduce", costs.reduce);
    Set(Kind::kReduceGrad, "reduce", costs.reduce);
    Set(Kind::kStep, "step", costs.step);
    Validate("comm", costs.comm);
    comm_ = costs.comm;
    transfer_ = PerStage("transfer", costs.transfer);
    latency_ = PerStage("latency", costs.latency);
    begin_ = PerStage("begin", costs.begin);
  }

  /// The time for which a message keeps its link.
  double Transfer(const Message& message) const { return transfer_[LowerEnd(message)]; }
  /// The time between its leaving the link and its arrival.
  double Latency(const Message& message) const { return comm_ + latency_[LowerEnd(message)]; }

  /// The time for a stage before the first action of its rank.
  double Begin(int stage) const { return begin_[stage]; }

  double Of(const Action& action) const {
    const std::vector<double>& table = Table(action.kind);
    const bool is_overlap = action.kind == Kind::kOverlap;
    if (!table.empty()) return table[action.stage] + (is_overlap ? 2 * action_ : 0);
    double sum = 0;
    if (is_overlap) {
      for (const Action& part : ActionParts(action)) sum += Of(part);
    }
    return sum;
  }

 private:
  /// The lower of the two stages between which a message passes.
  static int LowerEnd(const Message& message) {
    return message.stage - (message.direction == Direction::kForward ? 1 : 0);
  }

  static void Validate(const char* name, double cost) {
    if (std::isfinite(cost) && cost >= 0) return;
    throw ConfigError(Str("the cost of ", name, " must be a number of at least 0, not ", cost));
  }

  const std::vector<double>& Table(Kind kind) const { return by_kind_[static_cast<int>(kind)]; }

  std::vector<double> Sum(Kind a, Kind b) const {
    std::vector<double> sum = Table(a);
    std::transform(sum.begin(), sum.end(), Table(b).begin(), sum.begin(), std::plus<>());
    return sum;
  }

  /// Adds `seconds` to the cost of every kind of compute action except overlaps.
  void AddToEach(const char* name, double seconds) {
    Validate(name, seconds);
    for (const Kind kind :
         {Kind::kForward, Kind::kInputGrad, Kind::kWeightGrad, Kind::kBackward, Kind::kRecompute}) {
      for (double& cost : by_kind_[static_cast<int>(kind)]) cost += seconds;
    }
  }

  void Set(Kind kind, const char* name, const std::vector<double>& costs) {
    by_kind_[static_cast<int>(kind)] = PerStage(name, costs);
  }

  std::vector<double> PerStage(const char* name, const std::vector<double>& costs) const {
    const size_t stages = static_cast<size_t>(stages_);
    if (costs.size() != 1 && costs.size() != stages) {
      throw ConfigError(Str("the cost of ", name, " has ", costs.size(), " entries for ",
                            Plural(stages_, "stage"), "; expected one or one per stage"));
    }
    for (double cost : costs) Validate(name, cost);
    return costs.size() == 1 ? std::vector<double>(stages, costs[0]) : costs;
  }

  const int stages_;
  double comm_ = 0;
  double action_ = 0;
  std::vector<double> transfer_,
      latency_;  // for messages that leave the stage forward or come back to it
  std::vector<double> begin_;
  std::vector<double> by_kind_[static_cast<int>(Kind::kReshard) + 1];
};

constexpr double kAbsent = -1;

// Runs all rows at once. Each row runs until it needs a message that has not been sent yet; the
// arrival of the message makes the rank ready again. An action is tried again only after a message
// for it has arrived, so the time is linear in the number of actions.
class Run {
 public:
  Run(const Program& program, const Costs& costs)
      : program_(program),
        links_(program),
        costs_(costs, program.stages()),
        is_lowered_(HasCommunication(program)),
        ranks_(program.ranks()),
        free_(static_cast<size_t>(links_.size())),
        waiting_(2 * static_cast<size_t>(program.stages()), -1),
        arrivals_(program, kAbsent) {
    times_.reserve(program.ranks());
    for (const auto& row : program.rows) times_.emplace_back(row.size());
    for (int s = 0; s < program.stages(); ++s) {
      Rank& rank = ranks_[program.stage_ranks[s]];
      rank.now += costs_.Begin(s);
      rank.busy = rank.now;
      rank.has_started = rank.now > 0;
    }
  }

  // Runs all rows to their end. Throws ConfigError if some ranks wait for ever.
  void Finish() {
    for (int r = program_.ranks() - 1; r >= 0; --r) ready_.push_back(r);
    while (!ready_.empty()) {
      const int r = ready_.back();
      ready_.pop_back();
      RunRow(r);
    }
    std::string stuck;
    for (int r = 0; r < program_.ranks() && stuck.size() < 1000; ++r) {
      const auto& row = program_.rows[r];
      const int next = static_cast<int>(ranks_[r].next);
      if (ranks_[r].next == row.size()) continue;
      stuck += Str("\n  rank ", r, " waits for ever at ", row[next], ": ", ShowRow(row, next));
    }
    if (!stuck.empty()) throw ConfigError("the program cannot finish:" + stuck);
  }

  Simulation TakeResult() {
    Simulation result;
    for (const Rank& rank : ranks_) {
      result.makespan = std::max(result.makespan, rank.now);
      result.busy.push_back(rank.busy);
      result.wait.push_back(rank.wait);
    }
    const double total = std::accumulate(result.busy.begin(), result.busy.end(), 0.0);
    const double available = result.makespan * program_.ranks();
    result.bubble = available > 0 ? 1 - total / available : 0;
    result.times = std::move(times_);
    return result;
  }

 private:
  struct Rank {
    size_t next = 0;
    double now = 0;
    double busy = 0;
    double wait = 0;  // idle time after its first action
    bool has_started = false;
  };

  void RunRow(int r) {
    Rank& rank = ranks_[r];
    const auto& row = program_.rows[r];
    for (; rank.next < row.size(); ++rank.next) {
      const Action& action = row[rank.next];
      const auto start = StartOf(r, action);
      if (!start) return;
      const double cost = action.kind == Kind::kIdle ? 0 : costs_.Of(action);
      if (rank.has_started) rank.wait += *start - rank.now;
      rank.has_started |= cost > 0;
      rank.now = *start + cost;
      rank.busy += cost;
      times_[r][rank.next] = {*start, rank.now};
      Tell(action, rank.now);
    }
  }

  // The time when the rank is free and all that the action reads has arrived. Returns nothing, and
  // notes that the rank waits, if some of it has not been sent.
  std::optional<double> StartOf(int r, const Action& action) {
    double start = ranks_[r].now;
    for (const Action& part : ActionParts(action)) {
      if (!PassesMessages(part.kind)) continue;
      const Message message = ReadBy(part);
      if (PassageOf(program_, message) == Passage::kNone) continue;  // it is there from the start
      const double arrival = arrivals_[message];
      if (arrival == kAbsent) {
        WaitingFor(message) = r;
        return std::nullopt;
      }
      start = std::max(start, arrival);
    }
    return start;
  }

  // Sends or hands over what an action gives when it ends at `now`.
  void Tell(const Action& action, double now) {
    if (IsCommunication(action.kind)) {
      if (IsSend(action.kind)) Send(MovedBy(action), now);
      return;
    }
    for (const Action& part : ActionParts(action)) {
      if (!PassesMessages(part.kind)) continue;
      const Message message = GivenBy(part);
      const Passage passage = PassageOf(program_, message);
      if (passage == Passage::kLocal) Arrive(message, now);
      if (passage == Passage::kAfar && !is_lowered_) Send(message, now);
    }
  }

  // Sends a message. The messages of a link leave in the order of the sender's row, each after the
  // one before it has left.
  void Send(const Message& message, double now) {
    const int link = links_.Of(message);
    if (link < 0) throw ConfigError(Str(program_.name, ": a send has no receive on another rank"));
    double& free = free_[static_cast<size_t>(link)];
    free = std::max(free, now) + costs_.Transfer(message);
    Arrive(message, free + costs_.Latency(message));
  }

  void Arrive(const Message& message, double when) {
    arrivals_[message] = when;
    int& waiting = WaitingFor(message);
    if (waiting < 0) return;
    ready_.push_back(waiting);
    waiting = -1;
  }

  // The rank that waits for a message to this stage, or -1. It is woken by any message to the stage
  // and then looks again.
  int& WaitingFor(const Message& message) {
    return waiting_[static_cast<size_t>(message.direction) * program_.stages() + message.stage];
  }

  const Program& program_;
  const Links links_;
  const CostTable costs_;
  const bool is_lowered_;
  std::vector<Rank> ranks_;
  std::vector<double> free_;  // by link: the time when its last message has left it
  std::vector<int> waiting_;  // the waiting rank, by direction and stage; -1: none
  PerMessage<double> arrivals_;
  std::vector<std::vector<Interval>> times_;
  std::vector<int> ready_;
};

}  // namespace

Simulation Simulate(const Program& program, const Costs& costs) {
  if (!program.has_places()) CheckOrThrow(program);
  Run run(program, costs);
  run.Finish();
  Simulation result = run.TakeResult();
  result.peak_activations = PeakActivations(program);
  return result;
}

}  // namespace strata::schedule
