#include "engine/schedule/program_search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/schedule/checker.h"
#include "engine/schedule/lifetimes.h"
#include "engine/schedule/lowering.h"
#include "engine/schedule/testing/generated.h"
#include "engine/schedule/testing/random_programs.h"
#include "engine/schedule/testing/schedule_testing.h"

namespace strata::schedule {
namespace {

using testing::AnyCosts;
using ::testing::HasSubstr;

int Largest(const std::vector<int>& values) {
  return *std::max_element(values.begin(), values.end());
}

Sizes AnySmallSizes() {
  return {.ranks = *rc::gen::inRange(1, 5),
          .stages_per_rank = *rc::gen::inRange(1, 4),
          .micro_batches = *rc::gen::inRange(1, 9)};
}

TEST(Search, GivesARightProgramWithinTheMemory) {
  EXPECT_TRUE(rc::check([] {
    const Sizes sizes = AnySmallSizes();
    const ProgramSearchOptions options = {AnyCosts(sizes.ranks * sizes.stages_per_rank),
                                          sizes.stages_per_rank + *rc::gen::inRange(0, 6)};
    const FoundProgram result = SearchProgram(sizes, options);
    RC_LOG() << result.origin << '\n' << ToGrid(result.program);
    RC_ASSERT(Check(result.program).Report() == "");
    RC_ASSERT(AccumulatesInOrder(result.program));
    LowerAndCheck(result.program);
    RC_ASSERT(Largest(PeakActivations(result.program)) <= options.memory);
    RC_ASSERT(Simulate(result.program, options.costs).makespan == result.simulation.makespan);
    RC_ASSERT(LowerBound(sizes, options.costs) <= result.simulation.makespan * (1 + 1e-12));
  }));
}

// With equal costs only the way of the first input to the last rank is lost.
TEST(Search, HasNoBubbleForEqualCosts) {
  for (int ranks = 1; ranks < 6; ++ranks) {
    for (int stages_per_rank : {1, 2}) {
      const Sizes sizes{ranks, stages_per_rank, 2 * ranks + 1};
      const FoundProgram result = SearchProgram(sizes);
      EXPECT_EQ(result.simulation.makespan, 3 * stages_per_rank * sizes.micro_batches + ranks - 1);
      const auto& wait = result.simulation.wait;
      EXPECT_EQ(*std::max_element(wait.begin(), wait.end()), 0);
    }
  }
}

TEST(Search, BoundIsReachedByOneRankAndByOneMicroBatchOnEach) {
  EXPECT_EQ(LowerBound({1, 1, 4}, {}), 12);
  EXPECT_EQ(LowerBound({4, 1, 1}, {.comm = 1}), 8 + 6);
  EXPECT_EQ(LowerBound({2, 1, 10}, {}), 30 + 0.5);
}

TEST(Search, NamesTheLeastMemory) {
  EXPECT_THAT(ConfigErrorOf([] { SearchProgram({2, 3, 4}, {{}, 2}); }), HasSubstr("it needs 3"));
  EXPECT_THAT(ConfigErrorOf([] {
                SearchProgram({2, 1, 4}, {{.forward = {1, 2, 3}}, 2});
              }),
              HasSubstr("3 entries for 2 stages"));
}

TEST(Search, IsTheScheduleAuto) {
  const Program program = Generate("auto", {.ranks = 3, .micro_batches = 6});
  EXPECT_EQ(program.name, "auto");
  EXPECT_EQ(Check(program).Report(), "");
  EXPECT_EQ(Simulate(program).makespan, 3 * 6 + 2);
}

TEST(Search, IsNeverSlowerThanAnyNamedScheduleInTheMemory) {
  EXPECT_TRUE(rc::check([] {
    const int ranks = *rc::gen::inRange(1, 4), stages_per_rank = *rc::gen::inRange(1, 3);
    const Sizes sizes{ranks, stages_per_rank, *rc::gen::inRange(1, 9)};
    const int memory = *rc::gen::inRange(stages_per_rank, 3 * ranks * stages_per_rank);
    const Costs costs = AnyCosts(ranks * stages_per_rank);
    const FoundProgram result = SearchProgram(sizes, {costs, memory});
    RC_ASSERT(Largest(result.simulation.peak_activations) <= memory);
    RC_ASSERT(result.program.micro_batches == sizes.micro_batches);
    RC_ASSERT(result.program.ranks() == ranks);
    RC_ASSERT(result.program.stages() == ranks * stages_per_rank);
    for (const std::string& name : testing::Names()) {
      if (name == "inference" || !Fits(name, sizes)) continue;
      const Simulation named = Simulate(Generate(name, sizes), costs);
      if (Largest(named.peak_activations) > memory) continue;
      RC_LOG() << name << '\n';
      RC_ASSERT(result.simulation.makespan <= named.makespan);
    }
  }));
}

// The caller defines the bytes: here the activations of each stage have another weight.
TEST(Search, IsNeverWorseThanAnyNamedScheduleInTheBytes) {
  EXPECT_TRUE(rc::check([] {
    const Sizes sizes = AnySmallSizes();
    const int stages = sizes.ranks * sizes.stages_per_rank;
    const auto weights =
        *rc::gen::container<std::vector<int64_t>>(stages, rc::gen::inRange<int64_t>(1, 9));
    const auto bytes = [&](const Program& program) {
      int64_t most = 0;
      for (const auto& row : program.rows) {
        int64_t alive = 0;
        for (const Action& action : row) {
          for (const Action& part : ActionParts(action)) {
            if (part.kind == Kind::kForward) most = std::max(most, alive += weights[part.stage]);
            if (GivesWeightGrad(part.kind)) alive -= weights[part.stage];
          }
        }
      }
      return most;
    };
    const ProgramSearchOptions options = {.costs = AnyCosts(stages),
                                          .bytes = bytes,
                                          .byte_limit = *rc::gen::inRange<int64_t>(1, 200),
                                          .memory_weight = *rc::gen::element(0.0, 0.15, 2.0)};
    const auto price = [&](const Program& program) {
      return Simulate(program, options.costs).makespan *
             std::pow(static_cast<double>(bytes(program)), options.memory_weight);
    };
    const auto run = [&] { return SearchProgram(sizes, options); };
    std::string error;
    std::optional<FoundProgram> found;
    try {
      found = run();
    } catch (const ConfigError& refused) {
      error = refused.what();
    }
    if (found) RC_ASSERT(bytes(found->program) <= options.byte_limit);
    for (const std::string& name : GeneratorNames()) {
      if (name == "inference" || name == "auto" || !Fits(name, sizes)) continue;
      const Program program = Generate(name, sizes);
      if (bytes(program) > options.byte_limit) continue;
      RC_ASSERT(found);
      RC_ASSERT(price(found->program) <= price(program));
    }
    RC_ASSERT(found || error.find("the least is") != std::string::npos);
  }));
}

TEST(Search, StaysOnTheMapThatItIsTold) {
  EXPECT_TRUE(rc::check([] {
    const int ranks = *rc::gen::inRange(1, 4);
    const Sizes sizes{ranks, 2, *rc::gen::inRange(1, 6)};
    std::vector<int> map = *rc::gen::arbitrary<bool>() ? VMap(ranks, 2) : LoopMap(ranks, 2);
    const Costs costs = AnyCosts(2 * ranks);
    const FoundProgram told = SearchProgram(sizes, {.costs = costs, .stage_ranks = map});
    RC_ASSERT(told.program.stage_ranks == map);
    RC_ASSERT(Check(told.program).Report() == "");
  }));
}

TEST(Search, GivesTheSameAnswerTwice) {
  EXPECT_TRUE(rc::check([] {
    const Sizes sizes{*rc::gen::inRange(1, 4), *rc::gen::inRange(1, 3), *rc::gen::inRange(1, 6)};
    const Costs costs = AnyCosts(sizes.ranks * sizes.stages_per_rank);
    const FoundProgram one = SearchProgram(sizes, {costs}), other = SearchProgram(sizes, {costs});
    RC_ASSERT(one.program == other.program);
    RC_ASSERT(one.origin == other.origin);
  }));
}

/// Enumerates the possible rows of a rank: every order of its F, I and W in which F comes before I
/// and I before W for each stage and micro-batch.
class AllRows {
 public:
  using Row = std::vector<Action>;

  static std::vector<Row> Of(const std::vector<int>& stages, int micro_batches) {
    AllRows all(stages, micro_batches);
    all.Extend({});
    return all.rows_;
  }

 private:
  AllRows(const std::vector<int>& stages, int micro_batches) {
    for (int s : stages) {
      for (int m = 0; m < micro_batches; ++m) {
        chains_.push_back({MakeAction(s, Kind::kForward, m), MakeAction(s, Kind::kInputGrad, m),
                           MakeAction(s, Kind::kWeightGrad, m)});
      }
    }
    done_.resize(chains_.size());
  }

  void Extend(Row row) {
    if (row.size() == 3 * chains_.size()) rows_.push_back(row);
    for (size_t c = 0; c < chains_.size(); ++c) {
      if (done_[c] == 3) continue;
      Row longer = row;
      longer.push_back(chains_[c][done_[c]++]);
      Extend(std::move(longer));
      --done_[c];
    }
  }

  std::vector<Row> chains_;
  std::vector<int> done_;
  std::vector<Row> rows_;
};

/// The least makespan of all programs on the map, found by trying all.
double LeastMakespan(const std::vector<int>& stage_ranks, int ranks, int micro_batches,
                     const Costs& costs) {
  Program program{"all", stage_ranks, micro_batches, true, {}};
  program.rows.resize(ranks);
  std::vector<std::vector<AllRows::Row>> rows;
  for (int r = 0; r < ranks; ++r) {
    rows.push_back(AllRows::Of(StagesOfRank(program, r), micro_batches));
  }
  double least = std::numeric_limits<double>::infinity();
  const std::function<void(int)> choose = [&](int r) {
    if (r == ranks) {
      const std::string error =
          ConfigErrorOf([&] { least = std::min(least, Simulate(program, costs).makespan); });
      return;
    }
    for (const AllRows::Row& row : rows[r]) {
      program.rows[r] = row;
      choose(r + 1);
    }
  };
  choose(0);
  return least;
}

TEST(AllRows, AreAsManyAsCombinatoricsSays) {
  EXPECT_EQ(AllRows::Of({0}, 1).size(), 1u);
  EXPECT_EQ(AllRows::Of({0}, 2).size(), 20u);    // 6! / 3!^2
  EXPECT_EQ(AllRows::Of({0}, 3).size(), 1680u);  // 9! / 3!^3
  EXPECT_EQ(AllRows::Of({0, 1}, 1).size(), 20u);
}

// Two ranks with two micro-batches have 400 programs, two ranks with two stages each as many.
TEST(Search, IsBetweenItsBoundAndTheBestOfAllPrograms) {
  std::mt19937 random(1);
  const auto any_costs = [&](int stages) {
    const auto list = [&] {
      std::vector<double> costs(stages);
      for (double& cost : costs) cost = static_cast<double>(1 + random() % 16) / 8;
      return costs;
    };
    return Costs{.forward = list(),
                 .input_grad = list(),
                 .weight_grad = list(),
                 .comm = static_cast<double>(random() % 8) / 8};
  };
  for (const Sizes& sizes : {Sizes{1, 1, 2}, {1, 2, 1}, {2, 1, 1}, {2, 1, 2}, {2, 2, 1}}) {
    for (int trial = 0; trial < 12; ++trial) {
      const Costs costs = any_costs(sizes.ranks * sizes.stages_per_rank);
      double least = LeastMakespan(LoopMap(sizes.ranks, sizes.stages_per_rank), sizes.ranks,
                                   sizes.micro_batches, costs);
      const double v = LeastMakespan(VMap(sizes.ranks, sizes.stages_per_rank), sizes.ranks,
                                     sizes.micro_batches, costs);
      if (sizes.stages_per_rank > 1) least = std::min(least, v);
      const FoundProgram result = SearchProgram(sizes, {.costs = costs});
      EXPECT_LE(LowerBound(sizes, costs), least * (1 + 1e-12));
      EXPECT_GE(result.simulation.makespan, least);
      EXPECT_EQ(result.simulation.makespan, least) << ToGrid(result.program);
    }
  }
}

// With more memory the program is never slower, and it keeps to every limit.
TEST(Search, IsFasterWithMoreMemoryOnly) {
  const Sizes sizes{.ranks = 3, .micro_batches = 6};
  double before = std::numeric_limits<double>::infinity();
  for (int memory = 1; memory <= 6; ++memory) {
    const FoundProgram result = SearchProgram(sizes, {.memory = memory});
    EXPECT_LE(Largest(result.simulation.peak_activations), memory);
    EXPECT_LE(result.simulation.makespan, before) << memory;
    before = result.simulation.makespan;
  }
  EXPECT_EQ(before, 3 * 6 + 2);
}

}  // namespace
}  // namespace strata::schedule
