// Compares the ToGrid() drawing of every schedule of the table with a literal, and checks the
// definition of each schedule's order within a row.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <string>
#include <vector>

#include "engine/base/text.h"
#include "engine/schedule/generators/generators.h"
#include "engine/schedule/testing/generated.h"
#include "engine/schedule/testing/schedule_testing.h"

namespace strata::schedule {
namespace {

using ::testing::TestParamInfo;
using ::testing::ValuesIn;

struct Drawn {
  const char* name;
  Sizes sizes;
  const char* grid;  // begins with a line break
};

std::string NameOf(const TestParamInfo<Drawn>& info) {
  const auto& [ranks, stages_per_rank, micro_batches] = info.param.sizes;
  return Str("Ranks", ranks, "Stages", stages_per_rank, "MicroBatches", micro_batches);
}

/// The drawing with one space between cells, because overlaps would make the lines too long.
std::string Narrow(const std::string& grid) {
  std::string narrow;
  for (const char c : grid) {
    if (c != ' ' || narrow.empty() || narrow.back() != ' ') narrow += c;
  }
  return narrow;
}

class Drawing : public ::testing::TestWithParam<Drawn> {};

TEST_P(Drawing, IsWordForWord) {
  const auto& [name, sizes, grid] = GetParam();
  const std::string drawn = "\n" + ToGrid(Generate(name, sizes));
  const bool overlaps = drawn.find("OVERLAP") != std::string::npos;
  EXPECT_EQ(overlaps ? Narrow(drawn) : drawn, grid);
}

INSTANTIATE_TEST_SUITE_P(GPipe, Drawing,
                         ValuesIn<Drawn>({
                             {"gpipe", {1, 1, 3}, R"(
rank 0 | F0 F1 F2 B0 B1 B2
)"},
                             {"gpipe", {3, 1, 4}, R"(
rank 0 | F0 F1 F2 F3 .  .  .  .  B0 B1 B2 B3
rank 1 | .  F0 F1 F2 F3 .  .  B0 B1 B2 B3 .
rank 2 | .  .  F0 F1 F2 F3 B0 B1 B2 B3 .  .
)"},
                             // Fewer micro-batches than ranks.
                             {"gpipe", {4, 1, 2}, R"(
rank 0 | F0 F1 .  .  .  .  .  .  B0 B1
rank 1 | .  F0 F1 .  .  .  .  B0 B1 .
rank 2 | .  .  F0 F1 .  .  B0 B1 .  .
rank 3 | .  .  .  F0 F1 B0 B1 .  .  .
)"},
                         }),
                         NameOf);

INSTANTIATE_TEST_SUITE_P(OneFOneB, Drawing,
                         ValuesIn<Drawn>({
                             {"1f1b", {1, 1, 3}, R"(
rank 0 | F0 B0 F1 B1 F2 B2
)"},
                             {"1f1b", {3, 1, 4}, R"(
rank 0 | F0 .  F1 .  F2 B0 F3 B1 .  B2 .  B3
rank 1 | .  F0 .  F1 B0 F2 B1 F3 B2 .  B3 .
rank 2 | .  .  F0 B0 F1 B1 F2 B2 F3 B3 .  .
)"},
                             {"1f1b", {4, 1, 2}, R"(
rank 0 | F0 .  F1 .  .  .  .  B0 .  B1
rank 1 | .  F0 .  F1 .  .  B0 .  B1 .
rank 2 | .  .  F0 .  F1 B0 .  B1 .  .
rank 3 | .  .  .  F0 B0 F1 B1 .  .  .
)"},
                         }),
                         NameOf);

INSTANTIATE_TEST_SUITE_P(Inference, Drawing,
                         ValuesIn<Drawn>({
                             {"inference", {3, 1, 4}, R"(
rank 0 | F0 F1 F2 F3 .  .
rank 1 | .  F0 F1 F2 F3 .
rank 2 | .  .  F0 F1 F2 F3
)"},
                         }),
                         NameOf);

INSTANTIATE_TEST_SUITE_P(
    Interleaved1F1B, Drawing,
    ValuesIn<Drawn>({
        // All forwards of stage 0, all of stage 2, then one forward, one backward.
        {"interleaved_1f1b", {2, 2, 2}, R"(
rank 0 | 0F0 0F1 2F0 2F1 .   2B0 .   2B1 0B0 0B1
rank 1 | .   1F0 1F1 3F0 3B0 3F1 3B1 1B0 1B1 .
)"},
        // Two groups of two: rank 0 warms up with 2(P-1) + (v-1)P + 1 = 5 forwards.
        {"interleaved_1f1b", {2, 2, 4}, R"(
rank 0 | 0F0 0F1 2F0 2F1 0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1 .   2B2 .   2B3 0B2 0B3
rank 1 | .   1F0 1F1 3F0 3B0 3F1 3B1 1F2 1B0 1F3 1B1 3F2 3B2 3F3 3B3 1B2 1B3 .
)"},
        // Three stages per rank.
        {"interleaved_1f1b", {2, 3, 2}, R"(
rank 0 | 0F0 0F1 2F0 2F1 4F0 4F1 .   4B0 .   4B1 2B0 2B1 0B0 0B1
rank 1 | .   1F0 1F1 3F0 3F1 5F0 5B0 5F1 5B1 3B0 3B1 1B0 1B1 .
)"},
        // The number of ranks does not divide that of micro-batches: one group of three.
        {"interleaved_1f1b", {2, 2, 3}, R"(
rank 0 | 0F0 0F1 0F2 2F0 2F1 2F2 2B0 .   2B1 .   2B2 0B0 0B1 0B2
rank 1 | .   1F0 1F1 1F2 3F0 3B0 3F1 3B1 3F2 3B2 1B0 1B1 1B2 .
)"},
        {"interleaved_1f1b", {4, 2, 4}, R"(
rank 0 | 0F0 0F1 0F2 0F3 4F0 4F1 4F2 4F3 .   .   .   4B0 .   4B1 .   4B2 .   4B3 0B0 0B1 0B2 0B3
rank 1 | .   1F0 1F1 1F2 1F3 5F0 5F1 5F2 5F3 .   5B0 .   5B1 .   5B2 .   5B3 1B0 1B1 1B2 1B3 .
rank 2 | .   .   2F0 2F1 2F2 2F3 6F0 6F1 6F2 6B0 6F3 6B1 .   6B2 .   6B3 2B0 2B1 2B2 2B3 .   .
rank 3 | .   .   .   3F0 3F1 3F2 3F3 7F0 7B0 7F1 7B1 7F2 7B2 7F3 7B3 3B0 3B1 3B2 3B3 .   .   .
)"},
    }),
    NameOf);

INSTANTIATE_TEST_SUITE_P(
    LoopedBfs, Drawing,
    ValuesIn<Drawn>({
        // All forwards of a stage, then of the next; backwards take the stages in the opposite
        // order.
        {"looped_bfs", {2, 2, 2}, R"(
rank 0 | 0F0 0F1 2F0 2F1 .   .   2B0 2B1 0B0 0B1
rank 1 | .   1F0 1F1 3F0 3F1 3B0 3B1 1B0 1B1 .
)"},
        {"looped_bfs", {2, 3, 2}, R"(
rank 0 | 0F0 0F1 2F0 2F1 4F0 4F1 .   .   4B0 4B1 2B0 2B1 0B0 0B1
rank 1 | .   1F0 1F1 3F0 3F1 5F0 5F1 5B0 5B1 3B0 3B1 1B0 1B1 .
)"},
        // Fewer micro-batches than ranks: each round waits for the one before it.
        {"looped_bfs", {4, 2, 2}, R"(
rank 0 | 0F0 0F1 .   .   4F0 4F1 .   .   .   .   .   .   4B0 4B1 .   .   0B0 0B1
rank 1 | .   1F0 1F1 .   .   5F0 5F1 .   .   .   .   5B0 5B1 .   .   1B0 1B1 .
rank 2 | .   .   2F0 2F1 .   .   6F0 6F1 .   .   6B0 6B1 .   .   2B0 2B1 .   .
rank 3 | .   .   .   3F0 3F1 .   .   7F0 7F1 7B0 7B1 .   .   3B0 3B1 .   .   .
)"},
    }),
    NameOf);

INSTANTIATE_TEST_SUITE_P(ZbH1, Drawing,
                         ValuesIn<Drawn>({
                             // P-s forwards before the first I; from then on W fill idle time.
                             {"zb_h1", {2, 1, 3}, R"(
rank 0 | F0 F1 .  I0 W0 F2 I1 W1 I2 W2
rank 1 | .  F0 I0 F1 I1 W0 F2 I2 W1 W2
)"},
                             {"zb_h1", {4, 1, 4}, R"(
rank 0 | F0 F1 F2 F3 .  .  .  I0 W0 I1 W1 I2 W2 I3 W3
rank 1 | .  F0 F1 F2 .  .  I0 F3 I1 W0 I2 W1 I3 W2 W3
rank 2 | .  .  F0 F1 .  I0 F2 I1 F3 I2 W0 I3 W1 W2 W3
rank 3 | .  .  .  F0 I0 F1 I1 F2 I2 F3 I3 W0 W1 W2 W3
)"},
                             // Fewer micro-batches than ranks.
                             {"zb_h1", {3, 1, 2}, R"(
rank 0 | F0 F1 .  .  .  I0 W0 I1 W1
rank 1 | .  F0 F1 .  I0 .  I1 W0 W1
rank 2 | .  .  F0 I0 F1 I1 W0 W1 .
)"},
                         }),
                         NameOf);

INSTANTIATE_TEST_SUITE_P(ZbH2, Drawing,
                         ValuesIn<Drawn>({
                             // 2(P-s)-1 forwards before the first I.
                             {"zb_h2", {2, 1, 3}, R"(
rank 0 | F0 F1 F2 I0 W0 I1 W1 I2 W2 .
rank 1 | .  F0 I0 F1 I1 F2 I2 W0 W1 W2
)"},
                             // Too few micro-batches to fill the pipe: the same as zb_h1.
                             {"zb_h2", {3, 1, 2}, R"(
rank 0 | F0 F1 .  .  .  I0 W0 I1 W1
rank 1 | .  F0 F1 .  I0 .  I1 W0 W1
rank 2 | .  .  F0 I0 F1 I1 W0 W1 .
)"},
                             {"zb_h2", {4, 1, 7}, R"(
rank 0 | F0 F1 F2 F3 F4 F5 F6 I0 W0 I1 W1 I2 W2 I3 W3 I4 W4 I5 W5 I6 W6 .  .  .
rank 1 | .  F0 F1 F2 F3 F4 I0 F5 I1 F6 I2 W0 I3 W1 I4 W2 I5 W3 I6 W4 W5 W6 .  .
rank 2 | .  .  F0 F1 F2 I0 F3 I1 F4 I2 F5 I3 F6 I4 W0 I5 W1 I6 W2 W3 W4 W5 W6 .
rank 3 | .  .  .  F0 I0 F1 I1 F2 I2 F3 I3 F4 I4 F5 I5 F6 I6 W0 W1 W2 W3 W4 W5 W6
)"},
                         }),
                         NameOf);

INSTANTIATE_TEST_SUITE_P(InterleavedZb, Drawing,
                         ValuesIn<Drawn>({
                             {"interleaved_zb", {2, 2, 2}, R"(
rank 0 | 0F0 0F1 2F0 2F1 .   2I0 2W0 2I1 2W1 0I0 0W0 0I1 0W1
rank 1 | .   1F0 1F1 3F0 3I0 3F1 3I1 3W0 1I0 3W1 1I1 1W0 1W1
)"},
                             {"interleaved_zb", {2, 2, 4}, R"(
rank 0 | 0F0 0F1 2F0 2F1 .   2I0 2W0 0F2 2I1 2W1 0F3 0I0 0W0 2F2 0I1 0W1 2F3 2I2 2W2 2I3 2W3 0I2 0W2 0I3 0W3
rank 1 | .   1F0 1F1 3F0 3I0 3F1 3I1 3W0 1F2 1I0 3W1 1F3 1I1 1W0 3F2 3I2 1W1 3F3 3I3 3W2 1I2 3W3 1I3 1W2 1W3
)"},
                             {"interleaved_zb", {4, 2, 4}, R"(
rank 0 | 0F0 0F1 0F2 0F3 4F0 4F1 4F2 4F3 .   .   .   4I0 4W0 4I1 4W1 4I2 4W2 4I3 4W3 0I0 0W0 0I1 0W1 0I2 0W2 0I3 0W3
rank 1 | .   1F0 1F1 1F2 1F3 5F0 5F1 5F2 .   .   5I0 5F3 5I1 5W0 5I2 5W1 5I3 5W2 1I0 5W3 1I1 1W0 1I2 1W1 1I3 1W2 1W3
rank 2 | .   .   2F0 2F1 2F2 2F3 6F0 6F1 .   6I0 6F2 6I1 6F3 6I2 6W0 6I3 6W1 2I0 6W2 2I1 6W3 2I2 2W0 2I3 2W1 2W2 2W3
rank 3 | .   .   .   3F0 3F1 3F2 3F3 7F0 7I0 7F1 7I1 7F2 7I2 7F3 7I3 7W0 3I0 7W1 3I1 7W2 3I2 7W3 3I3 3W0 3W1 3W2 3W3
)"},
                         }),
                         NameOf);

INSTANTIATE_TEST_SUITE_P(Zbv, Drawing,
                         ValuesIn<Drawn>({
                             // 2P-1 micro-batches: no rank waits.
                             {"zbv", {2, 2, 3}, R"(
rank 0 | 0F0 0F1 0F2 3F0 3I0 3W0 3F1 3I1 3W1 0I0 0W0 3F2 3I2 3W2 0I1 0W1 0I2 0W2 .
rank 1 | .   1F0 2F0 1F1 2F1 2I0 2W0 1F2 1I0 1W0 2F2 2I1 2W1 1I1 2I2 1I2 1W1 2W2 1W2
)"},
                             // The way of one micro-batch up the V and back.
                             {"zbv", {2, 2, 1}, R"(
rank 0 | 0F0 .   .   3F0 3I0 3W0 .   0I0 0W0
rank 1 | .   1F0 2F0 .   .   2I0 1I0 2W0 1W0
)"},
                             {"zbv", {4, 2, 4}, R"(
rank 0 | 0F0 0F1 0F2 0F3 .   .   .   7F0 7I0 7F1 7I1 7F2 7I2 7F3 7I3 0I0 7W0 0I1 7W1 0I2 7W2 0I3 7W3 0W0 0W1 0W2 0W3
rank 1 | .   1F0 1F1 1F2 1F3 .   6F0 .   6F1 6I0 6F2 6I1 6F3 6I2 1I0 6I3 1I1 6W0 1I2 6W1 1I3 6W2 1W0 6W3 1W1 1W2 1W3
rank 2 | .   .   2F0 2F1 2F2 5F0 2F3 5F1 .   5F2 5I0 5F3 5I1 2I0 5I2 2I1 5I3 2I2 5W0 2I3 5W1 2W0 5W2 2W1 5W3 2W2 2W3
rank 3 | .   .   .   3F0 4F0 3F1 4F1 3F2 4F2 3F3 4F3 4I0 3I0 4I1 3I1 4I2 3I2 4I3 3I3 4W0 3W0 4W1 3W1 4W2 3W2 4W3 3W3
)"},
                         }),
                         NameOf);

INSTANTIATE_TEST_SUITE_P(VHalf, Drawing,
                         ValuesIn<Drawn>({
                             {"v_half", {2, 2, 3}, R"(
rank 0 | 0F0 .   .   3F0 0F1 3I0 3W0 3F1 0F2 0I0 3I1 0W0 3W1 3F2 .   0I1 3I2 0W1 3W2 0I2 0W2
rank 1 | .   1F0 2F0 .   .   1F1 2F1 2I0 1I0 2W0 1F2 1W0 2F2 2I1 1I1 2W1 1W1 2I2 1I2 2W2 1W2
)"},
                             {"v_half", {4, 2, 4}, R"(
rank 0 | 0F0 0F1 .   .   .   .   .   7F0 0F2 7I0 7W0 7F1 0F3 7I1 7W1 7F2 .   .   0I0 7I2 0W0 7F3 7W2 0I1 7I3 0W1 7W3 0I2 0W2 .   .   0I3 0W3
rank 1 | .   1F0 1F1 .   .   .   6F0 .   .   1F2 6F1 6I0 6W0 1F3 6F2 6I1 6W1 1I0 1W0 .   6F3 6I2 1I1 6W2 1W1 6I3 1I2 6W3 1W2 .   1I3 1W3 .
rank 2 | .   .   2F0 .   .   5F0 2F1 .   .   5F1 2F2 .   5I0 5F2 5W0 2F3 2I0 5I1 2W0 5F3 5W1 2I1 5I2 2W1 5W2 2I2 5I3 2W2 5W3 2I3 2W3 .   .
rank 3 | .   .   .   3F0 4F0 .   .   3F1 4F1 .   .   3F2 4F2 4I0 3I0 4W0 3F3 3W0 4F3 4I1 3I1 4W1 3W1 4I2 3I2 4W2 3W2 4I3 3I3 4W3 3W3 .   .
)"},
                             // With one micro-batch both schedules are just its way through the V.
                             {"v_half", {3, 2, 1}, R"(
rank 0 | 0F0 .   .   .   .   5F0 5I0 5W0 .   .   .   0I0 0W0
rank 1 | .   1F0 .   .   4F0 .   .   4I0 4W0 .   1I0 1W0 .
rank 2 | .   .   2F0 3F0 .   .   .   .   3I0 2I0 3W0 2W0 .
)"},
                         }),
                         NameOf);

INSTANTIATE_TEST_SUITE_P(VMin, Drawing,
                         ValuesIn<Drawn>({
                             {"v_min", {2, 2, 3}, R"(
rank 0 | 0F0 .   .   3F0 3I0 0F1 3W0 0I0 0W0 3F1 3I1 0F2 3W1 0I1 0W1 3F2 3I2 3W2 .   0I2 0W2
rank 1 | .   1F0 2F0 .   .   2I0 1I0 1F1 2F1 2W0 1W0 2I1 1I1 1F2 2F2 2W1 1W1 2I2 1I2 2W2 1W2
)"},
                             {"v_min", {4, 2, 4}, R"(
rank 0 | 0F0 0F1 .   .   .   .   .   7F0 7I0 0F2 7W0 .   .   7F1 7I1 0I0 7W1 0F3 0W0 7F2 7I2 0I1 7W2 0W1 .   7F3 7I3 0I2 7W3 0W2 .   .   .   0I3 0W3
rank 1 | .   1F0 .   .   .   .   6F0 1F1 .   6I0 6W0 .   6F1 1F2 1I0 6I1 1W0 6W1 6F2 1F3 1I1 6I2 1W1 6W2 6F3 .   1I2 6I3 1W2 6W3 .   .   1I3 1W3 .
rank 2 | .   .   2F0 .   .   5F0 .   .   2F1 .   5I0 5F1 5W0 2I0 2F2 2W0 5I1 5F2 5W1 2I1 2F3 2W1 5I2 5F3 5W2 2I2 2W2 .   5I3 5W3 .   2I3 2W3 .   .
rank 3 | .   .   .   3F0 4F0 .   .   .   .   3F1 4F1 4I0 3I0 4W0 3W0 3F2 4F2 4I1 3I1 4W1 3W1 3F3 4F3 4I2 3I2 4W2 3W2 .   .   4I3 3I3 4W3 3W3 .   .
)"},
                             {"v_min", {3, 2, 1}, R"(
rank 0 | 0F0 .   .   .   .   5F0 5I0 5W0 .   .   .   0I0 0W0
rank 1 | .   1F0 .   .   4F0 .   .   4I0 4W0 .   1I0 1W0 .
rank 2 | .   .   2F0 3F0 .   .   .   .   3I0 2I0 3W0 2W0 .
)"},
                         }),
                         NameOf);

INSTANTIATE_TEST_SUITE_P(DualPipeV, Drawing,
                         ValuesIn<Drawn>({
                             {"dualpipev", {1, 2, 2}, R"(
rank 0 | 0F0 1F0 0F1 1B0 (1F1;0B0)OVERLAP_F_B 1B1 0I1 0W1
)"},
                             {"dualpipev", {2, 2, 5}, R"(
rank 0 | 0F0 0F1 0F2 3F0 3I0 3W0 3F1 (0F3;3B1)OVERLAP_F_B (3F2;0B0)OVERLAP_F_B (0F4;3B2)OVERLAP_F_B (3F3;0B1)OVERLAP_F_B 3B3 (3F4;0B2)OVERLAP_F_B 3B4 0I3 0W3 0I4 0W4
rank 1 | . 1F0 2F0 1F1 2F1 1F2 2B0 (2F2;1B0)OVERLAP_F_B (1F3;2B1)OVERLAP_F_B (2F3;1B1)OVERLAP_F_B (1F4;2B2)OVERLAP_F_B (2F4;1B2)OVERLAP_F_B 2B3 1B3 2I4 1I4 2W4 1W4
)"},
                         }),
                         NameOf);

/// The row without its idle cells.
std::vector<Action> WithoutIdle(std::vector<Action> row) {
  std::erase_if(row, [](const Action& action) { return action.kind == Kind::kIdle; });
  return row;
}

/// The number of forwards of a row before the first action with a backward in it.
int WarmUp(const std::vector<Action>& row) {
  const std::vector<Action> dense = WithoutIdle(row);
  const auto is_back = [](const Action& action) { return action.kind != Kind::kForward; };
  return static_cast<int>(std::find_if(dense.begin(), dense.end(), is_back) - dense.begin());
}

TEST(Definition, OfWarmUps) {
  EXPECT_TRUE(rc::check([] {
    const int P = *rc::gen::inRange(1, 9), M = *rc::gen::inRange(1, 30);
    const Sizes sizes{.ranks = P, .micro_batches = M};
    for (int r = 0; r < P; ++r) {
      RC_ASSERT(WarmUp(Generate("gpipe", sizes).rows[r]) == M);
      RC_ASSERT(WarmUp(Generate("1f1b", sizes).rows[r]) == std::min(M, P - r));
      RC_ASSERT(WarmUp(Generate("zb_h1", sizes).rows[r]) == std::min(M, P - r));
    }
  }));
}

TEST(Definition, OfZbH2sWarmUp) {
  EXPECT_TRUE(rc::check([] {
    const int P = *rc::gen::inRange(1, 9), M = 2 * P - 1 + *rc::gen::inRange(0, 20);
    const Program program = Generate("zb_h2", {.ranks = P, .micro_batches = M});
    for (int r = 0; r < P; ++r) RC_ASSERT(WarmUp(program.rows[r]) == 2 * (P - r) - 1);
  }));
}

// The formula of Narayanan et al. and of Megatron-LM's get_num_warmup_microbatches, plus the
// forward of the first "one forward, one backward".
TEST(Definition, OfInterleavedWarmUps) {
  EXPECT_TRUE(rc::check([] {
    const int P = *rc::gen::inRange(1, 7), v = *rc::gen::inRange(2, 5);
    const int M = P * *rc::gen::inRange(1, 6);
    const Program program = Generate("interleaved_1f1b", {P, v, M});
    for (int r = 0; r < P; ++r) {
      RC_ASSERT(WarmUp(program.rows[r]) == std::min(v * M, 2 * (P - r - 1) + (v - 1) * P + 1));
    }
  }));
}

// As in Megatron-LM, groups of P micro-batches go through all stages of a rank: forwards in
// ascending order of stages, backwards in descending order.
TEST(Definition, OfInterleavedOrders) {
  EXPECT_TRUE(rc::check([] {
    const int P = *rc::gen::inRange(1, 6), v = *rc::gen::inRange(1, 5);
    const int M = P * *rc::gen::inRange(1, 5);
    const Program program = Generate("interleaved_1f1b", {P, v, M});
    for (int r = 0; r < P; ++r) {
      int forwards = 0, backwards = 0;
      for (const Action& action : WithoutIdle(program.rows[r])) {
        const bool is_forward = action.kind == Kind::kForward;
        const int k = is_forward ? forwards++ : backwards++;
        const int round = k / P % v;
        RC_ASSERT(action.stage == (is_forward ? round : v - 1 - round) * P + r);
        RC_ASSERT(action.micro_batch == k / (P * v) * P + k % P);
      }
    }
  }));
}

TEST(Definition, OfLoopedBfs) {
  EXPECT_TRUE(rc::check([] {
    const Sizes sizes = testing::AnySizes("looped_bfs");
    const Program program = Generate("looped_bfs", sizes);
    for (int r = 0; r < sizes.ranks; ++r) {
      std::vector<Action> expected;
      for (int k = 0; k < 2 * sizes.stages_per_rank; ++k) {
        const bool is_forward = k < sizes.stages_per_rank;
        const int round = is_forward ? k : 2 * sizes.stages_per_rank - 1 - k;
        for (int m = 0; m < sizes.micro_batches; ++m) {
          const Kind kind = is_forward ? Kind::kForward : Kind::kBackward;
          expected.push_back(MakeAction(round * sizes.ranks + r, kind, m));
        }
      }
      RC_ASSERT(WithoutIdle(program.rows[r]) == expected);
    }
  }));
}

// The micro-batches go through each stage in the same order.
TEST(Definition, MicroBatchesKeepTheirOrder) {
  EXPECT_TRUE(rc::check([] {
    const auto [name, sizes] = testing::AnyGenerated();
    const Program program = Generate(name, sizes);
    std::vector<int> forwards(program.stages()), input_grads(program.stages());
    for (const auto& row : program.rows) {
      for (const Action& action : row) {
        for (const Action& part : ActionParts(action)) {
          if (part.kind == Kind::kForward) RC_ASSERT(part.micro_batch == forwards[part.stage]++);
          if (!GivesInputGrad(part.kind)) continue;
          RC_ASSERT(part.micro_batch == input_grads[part.stage]++);
        }
      }
    }
  }));
}

// Only zero-bubble schedules split all backwards. DualPipeV splits some and overlaps others.
TEST(Definition, OfKinds) {
  EXPECT_TRUE(rc::check([] {
    const auto [name, sizes] = testing::AnyGenerated();
    const bool is_whole = name == "gpipe" || name == "1f1b" || name == "interleaved_1f1b" ||
                          name == "looped_bfs" || name == "inference";
    for (const auto& row : Generate(name, sizes).rows) {
      for (const Action& action : row) {
        const bool is_half = action.kind == Kind::kInputGrad || action.kind == Kind::kWeightGrad;
        RC_ASSERT(!is_whole || !is_half);
        RC_ASSERT(is_whole || name == "dualpipev" || action.kind != Kind::kBackward);
        RC_ASSERT(name == "dualpipev" || action.kind != Kind::kOverlap);
      }
    }
  }));
}

}  // namespace
}  // namespace strata::schedule
