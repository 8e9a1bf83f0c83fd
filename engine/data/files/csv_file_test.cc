#include "engine/data/files/csv_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/testing.h"

namespace strata::data {
namespace {

using Rows = std::vector<std::vector<std::string>>;

Rows Read(std::string_view text, char separator = ',') {
  CsvReader reader(text, separator, "a.csv");
  Rows rows;
  for (std::vector<CsvCell> row; reader.Next(row);) {
    rows.emplace_back();
    for (const CsvCell& cell : row) rows.back().push_back(cell.text);
  }
  return rows;
}

TEST(CsvReader, ReadsRows) {
  EXPECT_EQ(Read(""), Rows{});
  EXPECT_EQ(Read("a,b\n1,2\n"), (Rows{{"a", "b"}, {"1", "2"}}));
  EXPECT_EQ(Read("a,b\r\n1,2"), (Rows{{"a", "b"}, {"1", "2"}}));
  EXPECT_EQ(Read("\n\na\n\r\n\nb\n"), (Rows{{"a"}, {"b"}}));
  EXPECT_EQ(Read("a,,\n,"), (Rows{{"a", "", ""}, {"", ""}}));
  EXPECT_EQ(Read("a;b,c", ';'), (Rows{{"a", "b,c"}}));
  EXPECT_EQ(Read("\xef\xbb\xbf"
                 "a"),
            (Rows{{"a"}}));
}

TEST(CsvReader, ReadsQuotes) {
  EXPECT_EQ(Read("\"a,b\",\"c\"\"d\""), (Rows{{"a,b", "c\"d"}}));
  EXPECT_EQ(Read("\"a\nb\",c\nd,e"), (Rows{{"a\nb", "c"}, {"d", "e"}}));
  EXPECT_EQ(Read("\"\",\"a\"\r\nb,c"), (Rows{{"", "a"}, {"b", "c"}}));
  EXPECT_EQ(Read("a\"b,c"), (Rows{{"a\"b", "c"}})) << "a quote within a bare cell is a letter";
}

TEST(CsvReader, NamesThePlace) {
  EXPECT_EQ(ErrorOf([] { Read("a,b\nc,\"d\ne"); }), "a.csv:2:3: the quote does not close");
  EXPECT_EQ(ErrorOf([] { Read("a\n\"b\nc\"d"); }), "a.csv:3:3: text behind a closed quote");
  EXPECT_EQ(ErrorOf([] { Read(std::string_view("a\nb,\0", 5)); }),
            "a.csv:2:3: expected text, got a byte of zero");
}

}  // namespace
}  // namespace strata::data
