#include "engine/base/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace strata {
namespace {

using ::testing::ElementsAre;
using Names = std::vector<std::string>;

TEST(Str, StreamsAllArguments) {
  EXPECT_EQ(Str("stage ", 2, " of ", 4u, ' ', 0.5), "stage 2 of 4 0.5");
}

TEST(Join, PutsTheSeparatorBetween) {
  EXPECT_EQ(Join(std::vector<int>{1, 2, 3}, ", "), "1, 2, 3");
  EXPECT_EQ(Join(std::vector<int>{7}, ", "), "7");
  EXPECT_EQ(Join(std::vector<int>{}, ", "), "");
}

TEST(Split, KeepsEmptyPieces) {
  EXPECT_THAT(Split("a,b", ','), ElementsAre("a", "b"));
  EXPECT_THAT(Split(",a,,b,", ','), ElementsAre("", "a", "", "b", ""));
  EXPECT_THAT(Split("", ','), ElementsAre(""));
  EXPECT_THAT(Split("a b", ','), ElementsAre("a b"));
}

RC_GTEST_PROP(SplitLaws, JoinUndoesIt, (const std::string& text)) {
  const char separator = *rc::gen::element('a', ',', '\0');
  RC_ASSERT(Join(Split(text, separator), std::string(1, separator)) == text);
}

TEST(Trim, TakesWhiteSpaceFromBothEnds) {
  EXPECT_EQ(Trim("  a b\t\r\n"), "a b");
  EXPECT_EQ(Trim("a"), "a");
  EXPECT_EQ(Trim(" \n "), "");
  EXPECT_EQ(Trim(""), "");
}

RC_GTEST_PROP(TrimLaws, WhatIsLeftBeginsAndEndsWithoutSpace, ()) {
  const auto text = *rc::gen::container<std::string>(rc::gen::element(' ', '\t', '\n', 'a', 'b'));
  const std::string_view trimmed = Trim(text);
  RC_ASSERT((trimmed.empty() || (!std::isspace(trimmed.front()) && !std::isspace(trimmed.back()))));
  RC_ASSERT(std::count(trimmed.begin(), trimmed.end(), 'a') ==
            std::count(text.begin(), text.end(), 'a'));
  RC_ASSERT((Trim(trimmed) == trimmed));
}

TEST(Lower, IsAsciiOnly) { EXPECT_EQ(Lower("GeLU-\xC3\x84 9"), "gelu-\xC3\x84 9"); }

TEST(EditDistance, CountsChangesAndTranspositions) {
  EXPECT_EQ(EditDistance("", ""), 0);
  EXPECT_EQ(EditDistance("", "abc"), 3);
  EXPECT_EQ(EditDistance("pipe", "pipe"), 0);
  EXPECT_EQ(EditDistance("pipe", "pip"), 1);
  EXPECT_EQ(EditDistance("pipe", "pipes"), 1);
  EXPECT_EQ(EditDistance("pipe", "pile"), 1);
  EXPECT_EQ(EditDistance("pipe", "ppie"), 1);
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3);
}

TEST(EditDistance, IgnoresCaseAndTheKindOfDash) {
  EXPECT_EQ(EditDistance("ReLU", "relu"), 0);
  EXPECT_EQ(EditDistance("micro-batches", "micro_batches"), 0);
}

RC_GTEST_PROP(EditDistanceLaws, IsSymmetricAndBounded,
              (const std::string& a, const std::string& b)) {
  const int distance = EditDistance(a, b);
  RC_ASSERT(distance == EditDistance(b, a));
  RC_ASSERT(distance <= static_cast<int>(std::max(a.size(), b.size())));
  RC_ASSERT(distance >= std::abs(static_cast<int>(a.size()) - static_cast<int>(b.size())));
  RC_ASSERT(EditDistance(a, a) == 0);
}

RC_GTEST_PROP(EditDistanceLaws, OneChangeIsOne, ()) {
  const auto text = *rc::gen::nonEmpty(rc::gen::container<std::string>(rc::gen::inRange('a', 'f')));
  const auto at = *rc::gen::inRange<size_t>(0, text.size());
  std::string changed = text, shorter = text, longer = text;
  changed[at] = 'x';
  shorter.erase(at, 1);
  longer.insert(at, "x");
  RC_ASSERT(EditDistance(text, changed) == 1);
  RC_ASSERT(EditDistance(text, shorter) == 1);
  RC_ASSERT(EditDistance(text, longer) == 1);
}

RC_GTEST_PROP(EditDistanceLaws, SwappedNeighboursAreOne, ()) {
  auto text = *rc::gen::unique<std::string>(10, rc::gen::inRange('a', 'z'));
  const std::string original = text;
  const auto at = *rc::gen::inRange<size_t>(0, text.size() - 1);
  std::swap(text[at], text[at + 1]);
  RC_ASSERT(EditDistance(original, text) == 1);
}

TEST(Nearest, FindsTypingMistakes) {
  const Names axes = {"pipe", "data", "model"};
  EXPECT_EQ(Nearest("pip", axes), "pipe");
  EXPECT_EQ(Nearest("mdoel", axes), "model");
  EXPECT_EQ(Nearest("Data", axes), "data");
  EXPECT_EQ(Nearest("data", axes), "data");
}

TEST(Nearest, TakesTheNearestAndOfEqualsTheFirst) {
  EXPECT_EQ(Nearest("conv2", Names{"conv1d", "conv2d"}), "conv2d");
  EXPECT_EQ(Nearest("conv3d", Names{"conv1d", "conv2d"}), "conv1d");
}

TEST(Nearest, TakesBeginnings) {
  EXPECT_EQ(Nearest("micro", Names{"steps", "micro_batches"}), "micro_batches");
  EXPECT_EQ(Nearest("m", Names{"micro_batches"}), "") << "one letter tells nothing";
  EXPECT_EQ(Nearest("step", Names{"stop", "steps"}), "steps") << "both are one letter away";
}

TEST(Nearest, GivesNothingWhenNothingIsNear) {
  EXPECT_EQ(Nearest("expert", Names{"pipe", "data", "model"}), "");
  EXPECT_EQ(Nearest("x", Names{"y"}), "") << "no letter in common";
  EXPECT_EQ(Nearest("g", Names{"_G"}), "") << "one letter tells nothing";
  EXPECT_EQ(Nearest("", Names{"a", "pipe"}), "");
  EXPECT_EQ(Nearest("pipe", Names{}), "");
}

RC_GTEST_PROP(NearestLaws, ANameIsNearestToItself, ()) {
  const auto names = *rc::gen::nonEmpty(rc::gen::unique<Names>(
      rc::gen::nonEmpty(rc::gen::container<std::string>(rc::gen::inRange('a', 'd')))));
  const auto name = *rc::gen::elementOf(names);
  RC_ASSERT(Nearest(name, names) == name);
}

RC_GTEST_PROP(NearestLaws, OneTypingMistakeIsForgiven, ()) {
  const Names keys = {"optimizer", "partition", "schedule", "hang_timeout", "micro_batches"};
  const auto key = *rc::gen::elementOf(keys);
  std::string typed = key;
  typed[*rc::gen::inRange<size_t>(0, typed.size())] = *rc::gen::inRange('a', 'z');
  RC_ASSERT(Nearest(typed, keys) == key);
}

TEST(DidYouMean, NamesTheNearestOrAll) {
  const Names axes = {"pipe", "data"};
  EXPECT_EQ(DidYouMean("pip", axes), "; did you mean \"pipe\"?");
  EXPECT_EQ(DidYouMean("expert", axes), "; it is one of pipe, data");
  EXPECT_EQ(DidYouMean("expert", axes, 1), "");
  EXPECT_EQ(DidYouMean("expert", Names{}), "");
}

TEST(Printf, HasRoomForAnyNumber) {
  EXPECT_EQ(Printf("%03d %s", 7, "ms"), "007 ms");
  EXPECT_EQ(Printf("%.0f", 1e300).size(), 301u);
}

TEST(ParseWhole, TakesDigitsAlone) {
  EXPECT_EQ(ParseWhole("07"), 7);
  EXPECT_EQ(ParseWhole<int64_t>("2147483648"), int64_t{1} << 31);
  for (const char* text : {"", "-1", "-0", "+1", " 1", "1 ", "1x", "2147483648"}) {
    EXPECT_FALSE(ParseWhole(text)) << text;
  }
  EXPECT_EQ(ParseWhole("7", 1, 7), 7);
  EXPECT_FALSE(ParseWhole("8", 1, 7));
  EXPECT_FALSE(ParseWhole("0", 1, 7));
}

TEST(FormatCount, GroupsThousands) {
  EXPECT_EQ(FormatCount(0), "0");
  EXPECT_EQ(FormatCount(999), "999");
  EXPECT_EQ(FormatCount(1000), "1,000");
  EXPECT_EQ(FormatCount(57044810), "57,044,810");
  EXPECT_EQ(FormatCount(-999), "-999");
  EXPECT_EQ(FormatCount(-1000), "-1,000");
  EXPECT_EQ(FormatCount(INT64_MIN), "-9,223,372,036,854,775,808");
}

RC_GTEST_PROP(FormatCountLaws, WithoutItsCommasItIsTheNumber, (int64_t n)) {
  std::string text = FormatCount(n);
  for (size_t i = text.size(); i >= 4 + (n < 0 ? 1u : 0u); i -= 4) {
    RC_ASSERT((text[i - 4] == ',' || i == 4));
  }
  std::erase(text, ',');
  RC_ASSERT(text == std::to_string(n));
}

TEST(FormatBytes, ThreeSignificantDigits) {
  EXPECT_EQ(FormatBytes(0), "0 B");
  EXPECT_EQ(FormatBytes(512), "512 B");
  EXPECT_EQ(FormatBytes(1023), "1023 B");
  EXPECT_EQ(FormatBytes(1024), "1.00 KiB");
  EXPECT_EQ(FormatBytes(1536), "1.50 KiB");
  EXPECT_EQ(FormatBytes(228.0 * 1024 * 1024), "228 MiB");
  EXPECT_EQ(FormatBytes(99.96 * 1024), "100 KiB");
  EXPECT_EQ(FormatBytes(999.6 * 1024), "0.98 MiB");
  EXPECT_EQ(FormatBytes(141.0 * 1024 * 1024 * 1024), "141 GiB");
  EXPECT_EQ(FormatBytes(std::ldexp(1.0, 70)), "1048576 PiB");
}

RC_GTEST_PROP(FormatBytesLaws, IsRightWithinHalfAPercent, ()) {
  const double bytes = std::exp2(*rc::gen::inRange(0, 5000) / 100.0);
  const Names pieces = Split(FormatBytes(bytes), ' ');
  const Names units = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  const auto unit = std::find(units.begin(), units.end(), pieces[1]) - units.begin();
  const double read = std::stod(pieces[0]) * std::pow(1024.0, static_cast<double>(unit));
  RC_ASSERT(std::abs(read - bytes) <= std::max(0.5, 0.00512 * bytes));
  RC_ASSERT(pieces[0].size() <= 4u);
}

TEST(FormatSeconds, ForPeople) {
  EXPECT_EQ(FormatSeconds(0), "0 us");
  EXPECT_EQ(FormatSeconds(85e-6), "85 us");
  EXPECT_EQ(FormatSeconds(999.6e-6), "1.00 ms");
  EXPECT_EQ(FormatSeconds(0.0123), "12.3 ms");
  EXPECT_EQ(FormatSeconds(0.9996), "1.00 s");
  EXPECT_EQ(FormatSeconds(4.56), "4.56 s");
  EXPECT_EQ(FormatSeconds(59.96), "1 min 00 s");
  EXPECT_EQ(FormatSeconds(119.7), "2 min 00 s");
  EXPECT_EQ(FormatSeconds(125), "2 min 05 s");
  EXPECT_EQ(FormatSeconds(3599.4), "59 min 59 s");
  EXPECT_EQ(FormatSeconds(3599.6), "1 h 00 min");
  EXPECT_EQ(FormatSeconds(7384), "2 h 03 min");
  EXPECT_EQ(FormatSeconds(165274), "45 h 55 min");
  EXPECT_EQ(FormatSeconds(273600), "3 d 04 h");
  EXPECT_EQ(FormatSeconds(std::numeric_limits<double>::infinity()), "inf s");
}

TEST(FormatDouble, IsTheShortestThatReadsBack) {
  EXPECT_EQ(FormatDouble(0.1), "0.1");
  EXPECT_EQ(FormatDouble(3), "3");
  EXPECT_EQ(FormatDouble(-0.0), "-0");
  EXPECT_EQ(FormatDouble(1e300), "1e+300");
  EXPECT_EQ(FormatDouble(1.0 / 3), "0.3333333333333333");
}

RC_GTEST_PROP(FormatDoubleLaws, ReadsBack, (double value)) {
  RC_ASSERT(std::stod(FormatDouble(value)) == value);
}

TEST(FormatShape, AsPython) {
  EXPECT_EQ(FormatShape(std::vector<int64_t>{8, 3, 224, 224}), "(8, 3, 224, 224)");
  EXPECT_EQ(FormatShape(std::vector<int64_t>{8}), "(8,)");
  EXPECT_EQ(FormatShape(std::vector<int64_t>{}), "()");
}

TEST(Plural, OfOneAndMany) {
  EXPECT_EQ(Plural(0, "layer"), "0 layers");
  EXPECT_EQ(Plural(1, "layer"), "1 layer");
  EXPECT_EQ(Plural(1200, "layer"), "1,200 layers");
  EXPECT_EQ(Plural(1, "micro-batch"), "1 micro-batch");
  EXPECT_EQ(Plural(2, "micro-batch"), "2 micro-batches");
  EXPECT_EQ(Plural(2, "class"), "2 classes");
}

TEST(TextTable, AlignsNumbersRightAndTextLeft) {
  TextTable table({"layer", "type", "params"});
  table.Add({"0", "Linear", "1,234"});
  table.Add({"10", "ReLU", "0"});
  EXPECT_EQ(table.Render(),
            "layer  type    params\n"
            "    0  Linear   1,234\n"
            "   10  ReLU         0\n");
}

TEST(TextTable, HasNoTrailingSpaces) {
  TextTable table({"a", "text"});
  table.Add({"1", "x"});
  table.Add({"", ""});
  EXPECT_EQ(table.Render(), "a  text\n1  x\n\n");
}

RC_GTEST_PROP(TextTableLaws, EveryCellIsInItsColumn, ()) {
  const auto cell = rc::gen::container<std::string>(rc::gen::element('a', 'b', '1', '2'));
  TextTable table({"name", "n"});
  const auto rows = *rc::gen::container<std::vector<std::pair<std::string, std::string>>>(
      rc::gen::pair(cell, cell));
  size_t width = 4;
  for (const auto& [left, right] : rows) {
    table.Add({left, right});
    width = std::max(width, left.size());
  }
  const Names lines = Split(table.Render(), '\n');
  // The header, the rows, and "" behind the last newline.
  RC_ASSERT(lines.size() == rows.size() + 2);
  for (size_t i = 0; i < rows.size(); ++i) {
    const std::string_view line = lines[i + 1];
    RC_ASSERT((Trim(line.substr(0, width)) == rows[i].first));
    if (line.size() > width) RC_ASSERT((Trim(line.substr(width)) == rows[i].second));
  }
}

TEST(TextTable, WithoutRowsIsItsHeader) { EXPECT_EQ(TextTable({"a", "b"}).Render(), "a  b\n"); }

TEST(TextTableDeathTest, RowsAreAsLongAsTheHeader) {
  TextTable table({"a", "b"});
  EXPECT_DEATH(table.Add({"1"}), "1 cells for 2");
}

}  // namespace
}  // namespace strata
