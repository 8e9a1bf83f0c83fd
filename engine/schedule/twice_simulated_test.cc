// Compares the simulator with another one, which steps from event to event and starts whatever can
// start.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "engine/schedule/generators/generators.h"
#include "engine/schedule/lowering.h"
#include "engine/schedule/simulator.h"
#include "engine/schedule/testing/generated.h"
#include "engine/schedule/testing/random_programs.h"
#include "engine/schedule/testing/schedule_testing.h"

namespace strata::schedule {
namespace {

using testing::AnyCostList;
using testing::AnyCosts;
using testing::AnyStages;

constexpr double kNever = std::numeric_limits<double>::infinity();

/// Simulates a program event by event. It uses none of the package's messages, links or orders: a
/// table holds the time when each tensor is at its rank, and another the time when each link is
/// free.
class EventSimulation {
 public:
  using Times = std::vector<std::vector<Interval>>;

  static Times Of(const Program& program, const Costs& costs) {
    return EventSimulation(program, costs).Run();
  }

 private:
  EventSimulation(const Program& program, const Costs& costs)
      : program_(program),
        costs_(costs),
        is_lowered_(HasCommunication(program)),
        next_(program.ranks(), 0),
        free_(program.ranks(), 0) {
    for (const auto& row : program.rows) times_.emplace_back(row.size());
  }

  Times Run() {
    double now = 0;
    while (now < kNever) {
      while (StartAll(now)) {
      }
      now = NextEvent(now);
    }
    for (int r = 0; r < program_.ranks(); ++r) {
      STRATA_CHECK(next_[r] == program_.rows[r].size()) << "rank " << r << " waits for ever";
    }
    return times_;
  }

  /// Returns true if some rank started its next action at `now`.
  bool StartAll(double now) {
    bool has_started = false;
    for (int r = 0; r < program_.ranks(); ++r) {
      if (next_[r] == program_.rows[r].size() || free_[r] > now) continue;
      const Action& action = program_.rows[r][next_[r]];
      if (ReadyAt(action) > now) continue;
      const double end = now + CostOf(action);
      times_[r][next_[r]++] = {now, end};
      free_[r] = end;
      Give(action, end);
      has_started = true;
    }
    return has_started;
  }

  double NextEvent(double now) const {
    double next = kNever;
    for (int r = 0; r < program_.ranks(); ++r) {
      if (next_[r] == program_.rows[r].size()) continue;
      const double start = std::max(free_[r], ReadyAt(program_.rows[r][next_[r]]));
      if (start > now) next = std::min(next, start);
    }
    return next;
  }

  /// The time when all that the action reads is there.
  double ReadyAt(const Action& action) const {
    double ready = 0;
    for (const Action& part : ActionParts(action)) {
      const int s = part.stage, m = part.micro_batch;
      if (part.kind == Kind::kForward && s > 0) ready = std::max(ready, At('x', s, m));
      if (GivesInputGrad(part.kind) && s < program_.last_stage()) {
        ready = std::max(ready, At('g', s, m));
      }
    }
    return ready;
  }

  double At(char what, int stage, int micro_batch) const {
    const auto found = at_.find({what, stage, micro_batch});
    return found == at_.end() ? kNever : found->second;
  }

  void Give(const Action& action, double end) {
    for (const Action& part : ActionParts(action)) {
      const int s = part.stage, m = part.micro_batch;
      const bool up_crosses = program_.crosses_after(s);
      const bool down_crosses = s > 0 && program_.crosses_after(s - 1);
      const bool leaves = !is_lowered_;
      if (part.kind == Kind::kForward && (leaves || !up_crosses)) {
        at_[{'x', s + 1, m}] = up_crosses ? Arrival('x', s, end) : end;
      }
      if (GivesInputGrad(part.kind) && (leaves || !down_crosses)) {
        at_[{'g', s - 1, m}] = down_crosses ? Arrival('g', s - 1, end) : end;
      }
      if (part.kind == Kind::kSendF) at_[{'x', s + 1, m}] = Arrival('x', s, end);
      if (part.kind == Kind::kSendB) at_[{'g', s - 1, m}] = Arrival('g', s - 1, end);
    }
  }

  /// The arrival of a message between the stages `lower` and `lower` + 1, which leaves after the
  /// earlier messages of its link.
  double Arrival(char what, int lower, double end) {
    const int up = program_.stage_ranks[lower + 1], down = program_.stage_ranks[lower];
    double& free = links_[{what, what == 'x' ? down : up, what == 'x' ? up : down}];
    free = std::max(free, end) + CostAt(costs_.transfer, lower);
    return free + costs_.comm + CostAt(costs_.latency, lower);
  }

  double CostOf(const Action& action) const {
    const auto of = [](const std::vector<double>& list, int s) {
      return list.size() == 1 ? list[0] : list[s];
    };
    double cost = 0;
    for (const Action& part : ActionParts(action)) {
      if (IsCompute(part.kind)) cost += costs_.action;
    }
    if (action.kind == Kind::kOverlap && !costs_.overlap.empty()) {
      return cost + of(costs_.overlap, action.stage);
    }
    for (const Action& part : ActionParts(action)) {
      const int s = part.stage;
      if (part.kind == Kind::kForward) cost += of(costs_.forward, s);
      if (part.kind == Kind::kInputGrad) cost += of(costs_.input_grad, s);
      if (part.kind == Kind::kWeightGrad) cost += of(costs_.weight_grad, s);
      if (part.kind == Kind::kRecompute) {
        cost += of(costs_.recompute.empty() ? costs_.forward : costs_.recompute, s);
      }
      if (part.kind == Kind::kBackward) {
        cost += costs_.backward.empty() ? of(costs_.input_grad, s) + of(costs_.weight_grad, s)
                                        : of(costs_.backward, s);
      }
      if (part.kind == Kind::kReduceTied || part.kind == Kind::kReduceGrad)
        cost += of(costs_.reduce, s);
      if (part.kind == Kind::kStep) cost += of(costs_.step, s);
    }
    return cost;
  }

  const Program& program_;
  const Costs& costs_;
  const bool is_lowered_;
  std::vector<size_t> next_;  // by rank: the position in its row
  std::vector<double> free_;  // by rank: the end of its last action
  std::map<std::tuple<char, int, int>, double> at_;
  std::map<std::tuple<char, int, int>, double> links_;  // the time when each link is free
  Times times_;
};

/// Random costs of every kind, with one entry or one per stage in each list.
Costs AnyFullCosts(int stages) {
  const auto one_or_all = [&] { return AnyCostList(*rc::gen::arbitrary<bool>() ? 1 : stages); };
  const auto or_none = [&] {
    return *rc::gen::arbitrary<bool>() ? one_or_all() : std::vector<double>();
  };
  return {.forward = one_or_all(),
          .input_grad = one_or_all(),
          .weight_grad = one_or_all(),
          .backward = or_none(),
          .recompute = or_none(),
          .overlap = or_none(),
          .comm = *rc::gen::inRange(0, 40) / 8.0,
          .transfer = one_or_all(),
          .latency = one_or_all(),
          .reduce = one_or_all(),
          .step = one_or_all(),
          .action = *rc::gen::inRange(0, 8) / 8.0};
}

/// Compares the times of all compute actions, and the figures that follow from them.
void ExpectSameTimes(const Program& program, const Costs& costs) {
  RC_LOG() << ToGrid(program);
  const Simulation simulation = Simulate(program, costs);
  const auto times = EventSimulation::Of(program, costs);
  double makespan = 0, total = 0;
  for (int r = 0; r < program.ranks(); ++r) {
    double busy = 0, first = kNever, last = 0;
    for (size_t i = 0; i < program.rows[r].size(); ++i) {
      const Action& action = program.rows[r][i];
      if (!IsCompute(action.kind)) continue;
      const Interval& expected = times[r][i];
      RC_LOG() << "rank " << r << ": " << ToText(action) << '\n';
      RC_ASSERT(simulation.times[r][i].start == expected.start);
      RC_ASSERT(simulation.times[r][i].end == expected.end);
    }
    for (size_t i = 0; i < program.rows[r].size(); ++i) {
      const Interval& expected = times[r][i];
      busy += expected.end - expected.start;
      if (expected.end == expected.start) continue;  // sends and receives take no time
      first = std::min(first, expected.start);
      last = std::max(last, expected.end);
    }
    RC_ASSERT(simulation.busy[r] == busy);
    RC_ASSERT(simulation.wait[r] == std::max(0.0, last - first - busy));
    makespan = std::max(makespan, last);
    total += busy;
  }
  RC_ASSERT(simulation.makespan == makespan);
  RC_ASSERT(std::abs(simulation.bubble - (1 - total / (program.ranks() * makespan))) < 1e-12);
}

// No stage, some or all run their forwards again.
TEST(TwiceSimulated, EveryNamedSchedule) {
  EXPECT_TRUE(rc::check([] {
    const auto [name, sizes] = testing::AnyGenerated();
    Program program = Generate(name, sizes);
    program = AddRecomputation(program, AnyStages(program.stages()));
    const Costs costs = AnyFullCosts(program.stages());
    ExpectSameTimes(program, costs);
    ExpectSameTimes(Lower(program), costs);
  }));
}

TEST(TwiceSimulated, RandomPrograms) {
  EXPECT_TRUE(rc::check([] {
    const Program program = testing::RandomProgram::Any();
    const Costs costs = AnyFullCosts(program.stages());
    ExpectSameTimes(program, costs);
    ExpectSameTimes(Lower(program), costs);
  }));
}

TEST(TwiceSimulated, EvaluationOnAnyMap) {
  EXPECT_TRUE(rc::check([] {
    const Program random = testing::RandomProgram::Any();
    const Program program = EvaluationProgram(random.stage_ranks, random.micro_batches);
    const Costs costs = AnyCosts(program.stages());
    ExpectSameTimes(program, costs);
    ExpectSameTimes(Lower(program), costs);
  }));
}

// A case to follow by hand: rank 1 waits 2 for each message, and rank 0 waits for rank 1.
TEST(TwiceSimulated, ACaseByHand) {
  const Program program = testing::FromRows({"0F0 0F1 0I0 0I1 0W0 0W1", "1F0 1B0 1F1 1B1"});
  const Costs costs = {.forward = {1, 3}, .input_grad = {2}, .weight_grad = {1}, .comm = 2};
  const double starts[2][6] = {{0, 1, 11, 17, 19, 20}, {3, 6, 9, 12}};
  for (const auto& times : {Simulate(program, costs).times, EventSimulation::Of(program, costs)}) {
    for (int r = 0; r < 2; ++r) {
      for (size_t i = 0; i < times[r].size(); ++i) EXPECT_EQ(times[r][i].start, starts[r][i]);
    }
  }
}

}  // namespace
}  // namespace strata::schedule
