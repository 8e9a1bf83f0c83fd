#include "engine/schedule/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "engine/base/testing.h"
#include "engine/base/text.h"

namespace strata::schedule {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::string ErrorOf(std::string_view csv, const ParseOptions& options = {}) {
  return ConfigErrorOf([&] { ParseProgram(csv, options); });
}

TEST(Maps, StagesOfRank) {
  Program program;
  program.stage_ranks = VMap(3, 2);
  program.rows.resize(3);
  EXPECT_THAT(StagesOfRank(program, 0), ElementsAre(0, 5));
  EXPECT_THAT(StagesOfRank(program, 2), ElementsAre(2, 3));
}

TEST(Maps, MessagesCrossBetweenRanksOnly) {
  Program program;
  program.stage_ranks = VMap(2, 2);  // 0 1 1 0
  EXPECT_TRUE(program.crosses_after(0));
  EXPECT_FALSE(program.crosses_after(1));
  EXPECT_TRUE(program.crosses_after(2));
  EXPECT_FALSE(program.crosses_after(3));
}

TEST(Csv, IsWhatTorchWrites) {
  // Python's csv module ends lines with \r\n and writes None as an empty cell.
  const Program program = ParseProgram("0F0,0F1,,0B0,0B1\r\n,1F0,1B0,1F1,1B1\r\n");
  EXPECT_EQ(program.ranks(), 2);
  EXPECT_THAT(program.stage_ranks, ElementsAre(0, 1));
  EXPECT_EQ(program.micro_batches, 2);
  EXPECT_TRUE(program.is_training);
  EXPECT_FALSE(HasCommunication(program));
  EXPECT_EQ(ToCsv(program), "0F0,0F1,,0B0,0B1\n,1F0,1B0,1F1,1B1\n");
}

TEST(AccumulatesInOrder, LooksAtBackwardsAndAtTheLastForwards) {
  const auto in_order = [](std::string_view csv) { return AccumulatesInOrder(ParseProgram(csv)); };
  EXPECT_TRUE(in_order("0F1,0F0,0B0,0B1\n1F0,1B0,1F1,1B1\n")) << "only the last stage has a head";
  EXPECT_FALSE(in_order("0F0,0F1,0B1,0B0\n1F0,1B0,1F1,1B1\n"));
  EXPECT_FALSE(in_order("0F0,0F1,0B0,0B1\n1F1,1F0,1B0,1B1\n"));
  EXPECT_FALSE(in_order("0F0,0F1,0R1,0R0,0B0,0B1\n"));
}

TEST(Csv, ReadsLoweredPrograms) {
  const std::string csv =
      "0UNSHARD,0F0,0SEND_F0,0RECV_B0,0B0,0REDUCE_GRAD,0RESHARD\n"
      "1UNSHARD,1RECV_F0,1F0,1B0,1SEND_B0,1REDUCE_TIED,1REDUCE_GRAD,1STEP\n";
  const Program program = ParseProgram(csv);
  EXPECT_TRUE(HasCommunication(program));
  EXPECT_EQ(program.micro_batches, 1);
  EXPECT_EQ(ToCsv(program), csv);
}

TEST(Csv, ReadsOverlaps) {
  const Program program = ParseProgram("0F0,0F1,(0F2;1B0)OVERLAP_F_B\n");
  EXPECT_THAT(program.stage_ranks, ElementsAre(0, 0));
  EXPECT_EQ(program.micro_batches, 3);
  EXPECT_TRUE(program.is_training);
}

TEST(Csv, ReadsCommentsQuotesAndSpaces) {
  const Program program = ParseProgram("# by hand\n 0F0 ,\"0F1\"\n# two\n1F0,1F1\n\n");
  EXPECT_EQ(ToCsv(program), "0F0,0F1\n1F0,1F1\n");
  EXPECT_FALSE(program.is_training);
}

TEST(Csv, ABlankLineBetweenIsAnIdleRank) { EXPECT_EQ(ParseProgram("0F0\n\n1F0").ranks(), 3); }

TEST(Csv, TheCallerKnowsBetter) {
  const Program program = ParseProgram(
      "0F0\n1F0\n", {.name = "mine", .stage_ranks = {0, 1, 1, 0}, .ranks = 2, .micro_batches = 4});
  EXPECT_EQ(program.name, "mine");
  EXPECT_EQ(program.stages(), 4);
  EXPECT_EQ(program.micro_batches, 4);
}

TEST(Csv, ErrorsNameRowColumnTextAndExpectation) {
  EXPECT_THAT(ErrorOf("0F0,0F1\n1F0,,1G1\n"),
              AllOf(HasSubstr("row 1, column 2: "), HasSubstr("\"1G1\" is not an action"),
                    HasSubstr("no kind \"G\""), HasSubstr("such as 2F0")));
  EXPECT_THAT(ErrorOf(""), HasSubstr("no rows"));
  EXPECT_THAT(ErrorOf("\n# nothing\n"), HasSubstr("no rows"));
  EXPECT_THAT(ErrorOf("0F0\n", {.micro_batches = -2}),
              HasSubstr("micro_batches must be at least 1, not -2"));
  EXPECT_THAT(ErrorOf("0F0\n1F0\n", {.ranks = 3}), HasSubstr("2 rows for 3 ranks"));
  EXPECT_THAT(ErrorOf("0F0\n1F0\n", {.stage_ranks = {0, 2}}),
              HasSubstr("on ranks 0, 2 but the program has 2 rows"));
}

TEST(Program, KnowsWhetherItsPlacesExist) {
  const Program right = ParseProgram("0F0,1F0,1STEP\n");
  EXPECT_TRUE(right.has_places());
  const auto with = [&](auto change) {
    Program program = right;
    change(program);
    return program.has_places();
  };
  EXPECT_FALSE(with([](Program& p) { p.stage_ranks = {0}; }));
  EXPECT_FALSE(with([](Program& p) { p.stage_ranks = {0, 1}; }));
  EXPECT_FALSE(with([](Program& p) { p.stage_ranks = {0, -1}; }));
  EXPECT_FALSE(with([](Program& p) { p.micro_batches = 0; }));
  EXPECT_FALSE(with([](Program& p) { p.rows[0][0].micro_batch = 1; }));
  EXPECT_FALSE(with([](Program& p) { p.rows[0][0].micro_batch = -1; }));
  EXPECT_FALSE(with([](Program& p) { p.rows[0][2].stage = -1; }));
  EXPECT_TRUE(with([](Program& p) { p.rows[0][2] = Action(); }));
}

TEST(ToGrid, DrawsColumns) {
  EXPECT_EQ(ToGrid(ParseProgram("0F0,,0F10,0B0\n,1F0,1B0,\n")),
            "rank 0 | F0  .   F10 B0\n"
            "rank 1 | .   F0  B0  .\n");
  EXPECT_EQ(ToGrid(ParseProgram("0F0,1F0,1B0,0B0")), "rank 0 | 0F0 1F0 1B0 0B0\n");
}

TEST(ToGrid, AlignsRanks) {
  std::string csv;
  for (int r = 0; r < 11; ++r) csv += Str(r, "F0\n");
  const std::vector<std::string> lines = Split(ToGrid(ParseProgram(csv)), '\n');
  EXPECT_EQ(lines[0], "rank  0 | F0");
  EXPECT_EQ(lines[10], "rank 10 | F0");
}

TEST(ShowRow, MarksThePositionAndElides) {
  const Program program = ParseProgram("0F0,0F1,0F2,0F3,,0B0,0B1,0B2,0B3\n");
  const auto& row = program.rows[0];
  EXPECT_EQ(ShowRow(row, 2), "0F0 0F1 [0F2] 0F3 . 0B0 0B1 0B2 0B3");
  EXPECT_EQ(ShowRow(row, 4, 20), "... 0F2 0F3 [.] 0B0 0B1 ...");
  EXPECT_EQ(ShowRow(row, -1, 12), "0F0 0F1 0F2 ...");
  EXPECT_EQ(ShowRow(row, 8, 16), "... 0B1 0B2 [0B3]");
  EXPECT_EQ(ShowRow({}, -1), "");
}

TEST(ShowRow, ShowsAtLeastTheMarkedAction) {
  const Program program = ParseProgram("0F0,0F1,0F2\n");
  EXPECT_EQ(ShowRow(program.rows[0], 1, 1), "... [0F1] ...");
}

}  // namespace
}  // namespace strata::schedule
