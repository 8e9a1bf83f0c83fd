#include "engine/schedule/gantt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>

#include "engine/schedule/generators/generators.h"
#include "engine/schedule/lowering.h"
#include "engine/schedule/testing/generated.h"
#include "engine/schedule/testing/schedule_testing.h"

namespace strata::schedule {
namespace {

using testing::FromRows;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string Draw(const Program& program, const Costs& costs = {},
                 const GanttOptions& options = {}) {
  return Gantt(program, Simulate(program, costs), options);
}

TEST(Gantt, OfOneFOneB) {
  EXPECT_EQ(Draw(Generate("1f1b", {.ranks = 3, .micro_batches = 4})),
            "rank 0 |F0F1F2........B0==F3B1==..B2==..B3==|\n"
            "rank 1 |..F0F1....B0==F2B1==F3B2==..B3==....|\n"
            "rank 2 |....F0B0==F1B1==F2B2==F3B3==........|\n"
            "makespan 18, bubble 33.3%, at most 3 activations alive on a rank\n");
}

TEST(Gantt, OfGPipe) {
  EXPECT_EQ(Draw(Generate("gpipe", {.ranks = 3, .micro_batches = 4})),
            "rank 0 |F0F1F2F3............B0==B1==B2==B3==|\n"
            "rank 1 |..F0F1F2F3......B0==B1==B2==B3==....|\n"
            "rank 2 |....F0F1F2F3B0==B1==B2==B3==........|\n"
            "makespan 18, bubble 33.3%, at most 4 activations alive on a rank\n");
}

TEST(Gantt, IsTheHeadersExample) {
  EXPECT_EQ(Draw(Generate("1f1b", {.ranks = 2, .micro_batches = 2})),
            "rank 0 |F0F1....B0==..B1==|\n"
            "rank 1 |..F0B0==F1B1==....|\n"
            "makespan 9, bubble 33.3%, at most 2 activations alive on a rank\n");
}

TEST(Gantt, OfALoweredProgramIsTheSame) {
  const Program program = Generate("1f1b", {.ranks = 3, .micro_batches = 4});
  EXPECT_EQ(Draw(Lower(program)), Draw(program));
}

TEST(Gantt, ShowsStagesWhereRanksHaveSeveral) {
  EXPECT_EQ(Draw(FromRows({"0F0 1F0 1I0 0B0 1W0"})),
            "rank 0 |0F0-1F0-1I0=0B0=====1W0~|\n"
            "makespan 6, bubble 0%, at most 2 activations alive on a rank\n");
}

TEST(Gantt, OfTorchsZeroBubbleV) {
  const auto golden = Golden("torch_pipelining")["schedules"];
  for (const auto& entry : golden) {
    if (entry["schedule"] != "ScheduleZBVZeroBubble" || entry["ranks"] != 2) continue;
    EXPECT_EQ(Draw(testing::FromTorch(entry)),
              "rank 0 |0F0-0F1-0F2-3F0-3I0=3W0~3F1-3I1=3W1~0F3-0I0=0W0~3F2-3I2=3W2~0I1=0W1~3F3-"
              "3I3=3W3~0I2=0W2~0I3=0W3~....|\n"
              "rank 1 |....1F0-2F0-1F1-2F1-2I0=2W0~1F2-1I0=1W0~2F2-2I1=2W1~1F3-1I1=1W1~2F3-2I2="
              "2W2~1I2=2I3=1I3=1W2~2W3~1W3~|\n"
              "makespan 25, bubble 4%, at most 4 activations alive on a rank\n");
  }
}

TEST(Gantt, FillsByKind) {
  const Program program = Lower(FromRows({"0F0 0F1 0R0 (0F2;0B0)OVERLAP_F_B 0I1 0W1 0B2"}));
  EXPECT_THAT(Draw(program, {.reduce = {1}, .step = {1}}, {.width = 36}),
              StartsWith("rank 0 |F0-F1-R0-F2B0#####I1=W1~B2====REDSTE|\n"));
}

TEST(Gantt, KeepsWhatFits) {
  const Program program = Generate("gpipe", {.ranks = 1, .micro_batches = 12});
  EXPECT_THAT(Draw(program, {}, {.width = 36}),
              StartsWith("rank 0 |012345678901B0B1B2B3B4B5B6B7B8B9B1B1|\n"));
  EXPECT_THAT(Draw(program, {}, {.width = 72}),
              StartsWith("rank 0 |F0F1F2F3F4F5F6F7F8F91011B0==B1=="));
}

TEST(Gantt, AlignsRanks) {
  const std::string picture = Draw(Generate("inference", {.ranks = 11, .micro_batches = 1}));
  EXPECT_THAT(picture, StartsWith("rank  0 |F0.."));
  EXPECT_THAT(picture, HasSubstr("\nrank 10 |...................."));
}

TEST(Gantt, ColorsOnRequest) {
  const std::string picture = Draw(FromRows({"0F0 0I0 0W0"}), {}, {.color = true});
  EXPECT_THAT(picture,
              StartsWith("rank 0 |\x1b[34mF0\x1b[0m\x1b[32mI0\x1b[0m\x1b[33mW0\x1b[0m|\n"));
}

TEST(Gantt, SaysSecondsAsPeopleDo) {
  EXPECT_THAT(Draw(FromRows({"0F0"}), {.forward = {0.0123}}, {.in_seconds = true}),
              HasSubstr("makespan 12.3 ms, bubble 0%"));
}

TEST(GanttLegend, NamesWhatThePictureHas) {
  EXPECT_EQ(GanttLegend(Generate("1f1b", {.ranks = 2, .micro_batches = 2})),
            "F forward, B backward; the number is the micro-batch\n");
  EXPECT_EQ(GanttLegend(Generate("zbv", {.ranks = 2, .stages_per_rank = 2, .micro_batches = 4})),
            "F forward, I input gradient, W weight gradient; the first number is the stage, the "
            "second the micro-batch\n");
}

TEST(Gantt, OfNothing) {
  EXPECT_THAT(Draw(FromRows({"0F0"}), {.forward = {0}}),
              StartsWith("rank 0 ||\nmakespan 0, bubble 0%"));
}

TEST(Gantt, RowsAreAsWideAsEachOther) {
  EXPECT_TRUE(rc::check([] {
    const int P = *rc::gen::inRange(1, 7), M = *rc::gen::inRange(1, 30);
    const int width = *rc::gen::inRange(0, 200);
    const Costs costs{.forward = {*rc::gen::inRange(1, 20) / 7.0},
                      .input_grad = {*rc::gen::inRange(0, 20) / 7.0}};
    const auto name = *rc::gen::elementOf(testing::Names());
    const std::string picture =
        Draw(Generate(name, testing::SizesFor(name, P, M)), costs, {.width = width});
    const std::vector<std::string> lines = Split(picture, '\n');
    RC_ASSERT(lines.size() == static_cast<size_t>(P) + 2);
    for (int r = 0; r < P; ++r) RC_ASSERT(lines[r].size() == lines[0].size());
    const size_t columns = lines[0].size() - std::string("rank 0 ||").size();
    RC_ASSERT((width == 0 ? columns <= 160u : columns == static_cast<size_t>(width)));
  }));
}

}  // namespace
}  // namespace strata::schedule
