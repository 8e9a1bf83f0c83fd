// Tests all named schedules of small sizes in lowered form. They survive a round trip through text,
// and the checker refuses them when any single action is missing, doubled, or moved across a
// dependency.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/text.h"
#include "engine/schedule/checker.h"
#include "engine/schedule/generators/generators.h"
#include "engine/schedule/lifetimes.h"
#include "engine/schedule/links.h"
#include "engine/schedule/lowering.h"
#include "engine/schedule/testing/generated.h"
#include "engine/schedule/testing/random_programs.h"
#include "engine/schedule/testing/schedule_testing.h"

namespace strata::schedule {
namespace {

using testing::AnyGenerated;
using testing::AnyStages;
using testing::Names;
using testing::SizesFor;
using ::testing::TestParamInfo;
using ::testing::ValuesIn;

const std::vector<int> kTied = {0, 1};

/// The lowered programs of a generator for one to three ranks. Stages 0 and 1 are tied if there are
/// two.
std::vector<Program> LoweredPrograms(const std::string& name) {
  std::vector<Program> programs;
  for (const auto& [ranks, micro_batches] : {std::pair(1, 2), {2, 1}, {2, 3}, {3, 3}}) {
    Sizes sizes = SizesFor(name, ranks, micro_batches);
    const bool takes_loops = Fits(name, {2, 2, 4}) && Fits(name, {2, 1, 4});
    if (takes_loops) sizes.stages_per_rank = 2;
    const Program program = Generate(name, sizes);
    const bool is_tied = program.is_training && program.stages() > 1;
    programs.push_back(Lower(program, {is_tied ? kTied : std::vector<int>()}));
  }
  return programs;
}

CheckOptions OptionsOf(const Program& program) {
  const bool is_tied = program.is_training && program.stages() > 1;
  return {.lowered = true, .tied_stages = is_tied ? kTied : std::vector<int>()};
}

class Broken : public ::testing::TestWithParam<std::string> {
 protected:
  /// Calls `change(program, rank, position)` on a copy of each program for each of its actions.
  /// Expects that the checker refuses each copy that the call changes, and returns their number.
  template <class Change>
  int ExpectRefused(Change change) {
    int count = 0;
    for (const Program& program : LoweredPrograms(GetParam())) {
      const CheckOptions options = OptionsOf(program);
      EXPECT_EQ(Check(program, options).Report(), "");
      for (int r = 0; r < program.ranks(); ++r) {
        for (size_t i = 0; i < program.rows[r].size(); ++i) {
          Program broken = program;
          change(broken, r, i);
          if (broken == program) continue;
          ++count;
          EXPECT_FALSE(Check(broken, options).ok())
              << "rank " << r << ": " << ShowRow(program.rows[r], static_cast<int>(i)) << '\n'
              << ToCsv(broken);
        }
      }
    }
    return count;
  }
};

INSTANTIATE_TEST_SUITE_P(Generators, Broken, ValuesIn(Names()),
                         [](const TestParamInfo<std::string>& info) {
                           return (info.param[0] == '1' ? "one" : "") + info.param;
                         });

TEST_P(Broken, ByAMissingAction) {
  ExpectRefused([](Program& program, int r, size_t i) {
    program.rows[r].erase(program.rows[r].begin() + i);
  });
}

TEST_P(Broken, ByASecondAction) {
  ExpectRefused([](Program& program, int r, size_t i) {
    auto& row = program.rows[r];
    row.insert(row.begin() + i + 1, Action(row[i]));
  });
  ExpectRefused([](Program& program, int r, size_t i) {
    program.rows[r].push_back(Action(program.rows[r][i]));
  });
}

TEST_P(Broken, ByAnActionOfAnotherRank) {
  ExpectRefused([](Program& program, int r, size_t i) {
    auto& other = program.rows[(r + 1) % program.ranks()];
    auto& row = program.rows[r];
    other.insert(other.begin() + std::min(i, other.size()), row[i]);
    row.erase(row.begin() + i);
  });
}

TEST_P(Broken, ByAnotherMicroBatchOrStage) {
  ExpectRefused([](Program& program, int r, size_t i) {
    Action& action = program.rows[r][i];
    if (action.kind == Kind::kOverlap) return;
    if (action.micro_batch >= 0) {
      action.micro_batch = (action.micro_batch + 1) % program.micro_batches;
    } else {
      action.stage = int16_t((action.stage + 1) % program.stages());
    }
  });
}

TEST_P(Broken, ByAnotherKind) {
  ExpectRefused([](Program& program, int r, size_t i) {
    Action& action = program.rows[r][i];
    if (action.kind == Kind::kOverlap) return;
    switch (action.kind) {
      case Kind::kForward:
        action.kind = Kind::kRecompute;
        return;
      case Kind::kBackward:
        action.kind = Kind::kInputGrad;
        return;
      case Kind::kSendF:
        action.kind = Kind::kSendB;
        return;
      case Kind::kRecvF:
        action.kind = Kind::kRecvB;
        return;
      case Kind::kReduceGrad:
        action.kind = Kind::kStep;
        return;
      default:
        action.kind = Kind::kForward;
    }
    if (!HasMicroBatch(action.kind)) return;
    action.micro_batch = std::max(action.micro_batch, 0);
  });
}

/// True if, by the meaning of their kinds, `later` depends on `earlier` of the same row.
bool RestsOn(const Program& program, const Action& later, const Action& earlier) {
  const bool same_stage = later.stage == earlier.stage;
  const bool same = same_stage && later.micro_batch == earlier.micro_batch;
  const bool forwards = later.kind == Kind::kForward && earlier.kind == Kind::kForward;
  const bool backwards = GivesInputGrad(later.kind) && GivesInputGrad(earlier.kind);
  if (later.micro_batch == earlier.micro_batch) {
    if (forwards && later.stage == earlier.stage + 1) return true;
    if (backwards && later.stage == earlier.stage - 1) return true;
  }
  switch (later.kind) {
    case Kind::kForward:
      return same && earlier.kind == Kind::kRecvF;
    case Kind::kInputGrad:
    case Kind::kBackward:
      return same && (earlier.kind == Kind::kForward || earlier.kind == Kind::kRecvB);
    case Kind::kWeightGrad:
      return same && earlier.kind == Kind::kInputGrad;
    case Kind::kSendF:
    case Kind::kRecvF:
    case Kind::kSendB:
    case Kind::kRecvB: {
      const Links links(program);
      const bool gives_input_grad = later.kind == Kind::kSendB && GivesInputGrad(earlier.kind);
      const bool gives_output = later.kind == Kind::kSendF && earlier.kind == Kind::kForward;
      if (same && (gives_input_grad || gives_output)) return true;
      return earlier.kind == later.kind && links.Of(MovedBy(earlier)) == links.Of(MovedBy(later));
    }
    case Kind::kReduceTied:
    case Kind::kReduceGrad:
      return same_stage && (GivesWeightGrad(earlier.kind) || earlier.kind == Kind::kReduceTied);
    case Kind::kStep:
      return same_stage && earlier.kind == Kind::kReduceGrad;
    default:
      return false;
  }
}

bool AnyPartRestsOn(const Program& program, const Action& later, const Action& earlier) {
  for (const Action& one : ActionParts(later)) {
    for (const Action& other : ActionParts(earlier)) {
      if (RestsOn(program, one, other)) return true;
    }
  }
  return false;
}

TEST_P(Broken, ByNeighboursThatSwapAcrossADependency) {
  const int swaps = ExpectRefused([](Program& program, int r, size_t i) {
    auto& row = program.rows[r];
    if (i + 1 == row.size() || !AnyPartRestsOn(program, row[i + 1], row[i])) return;
    std::swap(row[i], row[i + 1]);
  });
  EXPECT_GT(swaps, 10);
}

// Each action moves behind the first action that depends on it.
TEST_P(Broken, ByAnActionThatMovesBehindWhatRestsOnIt) {
  const int moves = ExpectRefused([](Program& program, int r, size_t i) {
    auto& row = program.rows[r];
    const auto rests = [&](const Action& later) { return AnyPartRestsOn(program, later, row[i]); };
    const auto found = std::find_if(row.begin() + i + 1, row.end(), rests);
    if (found == row.end()) return;
    std::rotate(row.begin() + i, row.begin() + i + 1, found + 1);
  });
  EXPECT_GT(moves, 10);
}

// The rows of two ranks cannot be exchanged, since their stages differ.
TEST_P(Broken, ByRowsThatSwap) {
  for (Program program : LoweredPrograms(GetParam())) {
    if (program.ranks() == 1) continue;
    const CheckOptions options = OptionsOf(program);
    std::swap(program.rows[0], program.rows[1]);
    EXPECT_FALSE(Check(program, options).ok()) << ToCsv(program);
  }
}

TEST_P(Broken, ByOneMicroBatchMoreThanItHas) {
  for (Program program : LoweredPrograms(GetParam())) {
    const CheckOptions options = OptionsOf(program);
    ++program.micro_batches;
    const std::string report = Check(program, options).Report();
    EXPECT_NE(report.find(Str("0F", program.micro_batches - 1, " is missing")), std::string::npos)
        << report;
  }
}

/// The options with which ParseProgram() finds the same program: its name, and what the rows of an
/// evaluation, or a rank without rows, do not tell.
ParseOptions Told(const Program& program) {
  return {.name = program.name,
          .stage_ranks = program.stage_ranks,
          .ranks = program.ranks(),
          .micro_batches = program.micro_batches};
}

TEST(Text, OfEachScheduleIsReadBack) {
  EXPECT_TRUE(rc::check([] {
    const auto [name, sizes] = AnyGenerated();
    const Program program = Generate(name, sizes);
    const std::vector<int> tied = AnyStages(program.stages());
    for (const Program& each : {program, AddCommunication(program), Lower(program, {tied})}) {
      RC_ASSERT(ParseProgram(ToCsv(each), Told(each)) == each);
      RC_ASSERT(ParseProgram(ToCsv(each), {.name = name}) == each);
    }
  }));
}

// Comments, spaces, quotes and other line ends do not change a program.
TEST(Text, OfEachScheduleIsReadBackHoweverItIsWritten) {
  EXPECT_TRUE(rc::check([] {
    const auto [name, sizes] = AnyGenerated();
    const Program program = Lower(Generate(name, sizes));
    std::string csv = "# by hand\n";
    for (const auto& row : program.rows) {
      std::vector<std::string> cells;
      for (const Action& action : row) cells.push_back(Str("  ", ToText(action), " "));
      csv += Join(cells, ",") + "\r\n";
    }
    RC_ASSERT(ParseProgram(csv, {.name = name}) == program);
  }));
}

}  // namespace
}  // namespace strata::schedule
