// Tests in which digests two tables must agree, and in which they may differ.
#include "engine/job/table_encoding.h"

#include <gtest/gtest.h>

namespace strata {
namespace {

constexpr TableEncoding kTable = {"w", "n", "s", "m", false};

bool Differs(const TableEncoding& theirs, const TableEncoding& ours = kTable) {
  return HasOtherNumbers(ours.ToText(), theirs.ToText());
}

TEST(TableEncoding, TextKeepsEverything) {
  for (const bool fills : {false, true}) {
    const TableEncoding read =
        TableEncoding::FromText(TableEncoding{"w", "", "s", "m", fills}.ToText());
    EXPECT_EQ(read.words, "w");
    EXPECT_EQ(read.names, "");
    EXPECT_EQ(read.scales, "s");
    EXPECT_EQ(read.means, "m");
    EXPECT_EQ(read.fills, fills);
  }
}

TEST(TableEncoding, WhatBothTellMustBeTheSame) {
  EXPECT_FALSE(Differs(kTable));
  EXPECT_FALSE(HasOtherNumbers("", kTable.ToText())) << "no table";
  EXPECT_FALSE(Differs({"", "", "", "", true})) << "says nothing";
  EXPECT_TRUE(Differs({"w2", "n", "s", "m", false}));
  EXPECT_TRUE(Differs({"w", "n2", "s", "m", false}));
  EXPECT_TRUE(Differs({"w", "n", "s2", "m", false}));
  EXPECT_TRUE(Differs({TableEncoding::kNone, "n", "s", "m", false}));
  EXPECT_TRUE(Differs({"w", "n", TableEncoding::kNone, "m", false}));
}

TEST(TableEncoding, MeansCountWhereTheyStandForMissingNumbers) {
  EXPECT_FALSE(Differs({"w", "n", "s", "m2", false}));
  EXPECT_TRUE(Differs({"w", "n", "s", "m2", true}));
  EXPECT_FALSE(Differs({"w", "n", "s", "m", true}));
  EXPECT_FALSE(Differs({"w", "n", "s", "m2", false}, {"w", "n", "s", "m", true}))
      << "no number of theirs is one of ours' means";
}

TEST(TableEncoding, SavesOfOlderVersionsHaveNoMeans) {
  const std::string table = TableEncoding{TableEncoding::kNone, "n", "s", "m", true}.ToText();
  EXPECT_FALSE(HasOtherNumbers("|n|s|f", table));
  EXPECT_FALSE(HasOtherNumbers("|n|s|", table));
  EXPECT_TRUE(HasOtherNumbers("w|n|s|", table));
  EXPECT_TRUE(HasOtherNumbers("|n|none|", table));
  EXPECT_FALSE(HasOtherNumbers("w", TableEncoding{"w", "", "", "m", true}.ToText())) << "of a map";
}

}  // namespace
}  // namespace strata
