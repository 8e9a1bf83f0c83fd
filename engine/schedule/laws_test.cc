// Tests laws that hold for every correct program, not only for named schedules, on random programs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <set>

#include "engine/schedule/checker.h"
#include "engine/schedule/gantt.h"
#include "engine/schedule/generators/generators.h"
#include "engine/schedule/lifetimes.h"
#include "engine/schedule/links.h"
#include "engine/schedule/lowering.h"
#include "engine/schedule/simulator.h"
#include "engine/schedule/testing/interpreter.h"
#include "engine/schedule/testing/oracles.h"
#include "engine/schedule/testing/random_programs.h"
#include "engine/schedule/testing/schedule_testing.h"

namespace strata::schedule {
namespace {

using testing::AnyCosts;
using testing::AnyStages;
using testing::RandomProgram;

TEST(RandomPrograms, AreOfAllSorts) {
  std::set<std::string> kinds;
  std::set<int> ranks;
  bool has_neighbours_on_a_rank = false;
  EXPECT_TRUE(rc::check([&] {
    const Program program = RandomProgram::Any();
    ranks.insert(program.ranks());
    for (const auto& row : program.rows) {
      for (const Action& action : row) kinds.insert(std::string(KindName(action.kind)));
    }
    for (int s = 0; s < program.last_stage(); ++s) {
      has_neighbours_on_a_rank |= !program.crosses_after(s);
    }
  }));
  EXPECT_EQ(kinds, (std::set<std::string>{"", "F", "I", "W", "B", "R", "OVERLAP_F_B"}));
  EXPECT_EQ(ranks.size(), 4u);
  EXPECT_TRUE(has_neighbours_on_a_rank);
}

TEST(Laws, ARightProgramPassesTheCheck) {
  EXPECT_TRUE(rc::check([] {
    const Program program = RandomProgram::Any();
    RC_LOG() << ToGrid(program);
    RC_ASSERT(Check(program).Report() == "");
  }));
}

TEST(Laws, WhatPassesCanBeLoweredAndPassesAgain) {
  EXPECT_TRUE(rc::check([] {
    const Program program = RandomProgram::Any();
    const std::vector<int> tied = AnyStages(program.stages());
    const Program lowered = Lower(program, {.tied_stages = tied});
    RC_LOG() << ToGrid(program) << ToGrid(lowered);
    RC_ASSERT(Check(lowered, {.lowered = true, .tied_stages = tied}).Report() == "");
    RC_ASSERT(Lower(lowered, {.tied_stages = tied}) == lowered);
  }));
}

TEST(Laws, LoweringKeepsTheOrderOfComputeActions) {
  EXPECT_TRUE(rc::check([] {
    const Program program = RandomProgram::Any();
    Program lowered = Lower(program), computing = program;
    for (Program* each : {&lowered, &computing}) {
      for (auto& row : each->rows) {
        std::erase_if(row, [](const Action& action) { return !IsCompute(action.kind); });
      }
    }
    RC_ASSERT(lowered == computing);
  }));
}

TEST(Laws, TheInterpreterRunsWhatTheCheckerPasses) {
  EXPECT_TRUE(rc::check([] {
    const Program program = RandomProgram::Any({.ranks = 3, .stages = 4, .micro_batches = 2});
    const Program lowered = AddCommunication(program);
    RC_LOG() << ToGrid(program) << ToGrid(lowered);
    RC_ASSERT(testing::Runs(program, false));
    RC_ASSERT(testing::Runs(lowered, true));
  }));
}

TEST(Laws, LoweringCostsNoTime) {
  EXPECT_TRUE(rc::check([] {
    const Program program = RandomProgram::Any();
    const Costs costs = AnyCosts(program.stages());
    const Simulation before = Simulate(program, costs);
    const Simulation after = Simulate(Lower(program), costs);
    RC_ASSERT(after.makespan == before.makespan);
    RC_ASSERT(after.bubble == before.bubble);
    RC_ASSERT(after.busy == before.busy);
    RC_ASSERT(after.peak_activations == before.peak_activations);
  }));
}

TEST(Laws, IdleStepsMeanNothing) {
  EXPECT_TRUE(rc::check([] {
    const Program program = RandomProgram::Any();
    Program dense = program;
    for (auto& row : dense.rows) {
      std::erase_if(row, [](const Action& action) { return action.kind == Kind::kIdle; });
    }
    const Costs costs = AnyCosts(program.stages());
    RC_ASSERT(Simulate(dense, costs).makespan == Simulate(program, costs).makespan);
    RC_ASSERT(StageBuffers(dense) == StageBuffers(program));
    RC_ASSERT(Lower(dense) == Lower(program));
    RC_ASSERT(Check(dense).peak_activations == Check(program).peak_activations);
  }));
}

TEST(Laws, CheaperIsNeverSlower) {
  EXPECT_TRUE(rc::check([] {
    const Program program = RandomProgram::Any();
    Costs costs = AnyCosts(program.stages());
    const double before = Simulate(program, costs).makespan;
    costs.forward[*rc::gen::inRange(0, program.stages())] = 0.125;
    costs.comm /= 2;
    RC_ASSERT(Simulate(program, costs).makespan <= before);
  }));
}

TEST(Laws, BuffersAreThoseOfTheDefinition) {
  EXPECT_TRUE(rc::check([] {
    const Program program = RandomProgram::Any();
    for (const Program& each : {program, AddCommunication(program)}) {
      RC_LOG() << ToGrid(each);
      RC_ASSERT(StageBuffers(each) == testing::BuffersByDefinition(each));
    }
  }));
}

TEST(Laws, BuffersAreEnoughAndNeeded) {
  EXPECT_TRUE(rc::check([] {
    const Program program = AddCommunication(RandomProgram::Any());
    std::vector<int> buffers = StageBuffers(program);
    RC_ASSERT(FindOverwrites(program, buffers).empty());
    const int stage = *rc::gen::inRange(0, program.stages());
    if (buffers[stage] == 2) return;  // may be more than needed, since there are never less
    --buffers[stage];
    const auto overwrites = FindOverwrites(program, buffers);
    RC_ASSERT(overwrites.size() == 1u);
    RC_ASSERT(overwrites[0].stage == stage);
    RC_ASSERT(overwrites[0].rank == program.stage_ranks[stage]);
    RC_ASSERT((overwrites[0].old_micro_batch - overwrites[0].new_micro_batch) % buffers[stage] ==
              0);
  }));
}

TEST(Laws, BuffersOfARankAreThoseOfItsStages) {
  EXPECT_TRUE(rc::check([] {
    const Program program = RandomProgram::Any();
    const std::vector<int> of_stages = StageBuffers(program), of_ranks = Buffers(program);
    for (int r = 0; r < program.ranks(); ++r) {
      int sum = 0;
      for (int s : StagesOfRank(program, r)) sum += of_stages[s];
      RC_ASSERT(of_ranks[r] == sum);
    }
  }));
}

TEST(Laws, PeaksAreThoseOfTheDefinition) {
  EXPECT_TRUE(rc::check([] {
    const Program program = RandomProgram::Any();
    RC_ASSERT(PeakActivations(program) == testing::PeaksByDefinition(program));
    RC_ASSERT(PeakActivations(Lower(program)) == testing::PeaksByDefinition(program));
  }));
}

TEST(Laws, EveryLinkIsFirstInFirstOut) {
  EXPECT_TRUE(rc::check([] {
    const Program program = AddCommunication(RandomProgram::Any());
    const Links links(program);
    std::vector<std::vector<Message>> sent(links.size()), received(links.size());
    for (int r = 0; r < program.ranks(); ++r) {
      for (const Action& action : program.rows[r]) {
        if (!IsCommunication(action.kind)) continue;
        const Message message = MovedBy(action);
        const int link = links.Of(message);
        RC_ASSERT(r == (IsSend(action.kind) ? links[link].from : links[link].to));
        (IsSend(action.kind) ? sent : received)[link].push_back(message);
      }
    }
    RC_ASSERT((sent == received));
  }));
}

TEST(Laws, TextKeepsEverything) {
  EXPECT_TRUE(rc::check([] {
    const Program program = RandomProgram::Any();
    for (const Program& each : {program, Lower(program)}) {
      RC_ASSERT(ParseProgram(ToCsv(each), {.name = each.name}) == each);
    }
  }));
}

TEST(Laws, EveryProgramHasAPicture) {
  EXPECT_TRUE(rc::check([] {
    const Program program = Lower(RandomProgram::Any());
    const Simulation simulation = Simulate(program, AnyCosts(program.stages()));
    const int width = *rc::gen::inRange(0, 120);
    const std::string picture = Gantt(program, simulation, {.width = width});
    const std::vector<std::string> lines = Split(picture, '\n');
    RC_ASSERT(lines.size() == static_cast<size_t>(program.ranks()) + 2);
    for (int r = 0; r < program.ranks(); ++r) RC_ASSERT(lines[r].size() == lines[0].size());
  }));
}

TEST(Laws, NothingCrashesOnNonsense) {
  EXPECT_TRUE(rc::check([] {
    Program program;
    program.micro_batches = *rc::gen::inRange(-1, 4);
    program.is_training = *rc::gen::arbitrary<bool>();
    program.rows.resize(*rc::gen::inRange(0, 4));
    const int stages = *rc::gen::inRange(0, 5);
    for (int s = 0; s < stages; ++s) program.stage_ranks.push_back(*rc::gen::inRange(-1, 4));
    for (auto& row : program.rows) {
      const int length = *rc::gen::inRange(0, 6);
      for (int i = 0; i < length; ++i) {
        const auto kind = static_cast<Kind>(*rc::gen::inRange(0, 16));
        const auto number = [] { return *rc::gen::inRange(-1, 5); };
        row.push_back(kind == Kind::kOverlap
                          ? MakeOverlap(MakeAction(number(), Kind::kForward, number()),
                                        MakeAction(number(), Kind::kBackward, number()))
                          : MakeAction(number(), kind, number()));
      }
    }
    const bool is_right = Check(program).ok();
    const std::string report = ConfigErrorOf([&] { LowerAndCheck(program, {.tied_stages = {0}}); });
    RC_ASSERT(is_right || report != "no error");
    ConfigErrorOf([&] { Simulate(program); });
  }));
}

}  // namespace
}  // namespace strata::schedule
