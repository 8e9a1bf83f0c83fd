#include "engine/data/files/csv_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <bit>
#include <cstdlib>

#include "engine/base/testing.h"

namespace strata::data {
namespace {

using Rows = std::vector<std::vector<std::string>>;

Rows Read(std::string_view text, char separator = ',') {
  CsvReader reader(text, separator, "a.csv");
  Rows rows;
  for (std::vector<CsvCell> row; reader.Next(row);) {
    rows.emplace_back();
    for (const CsvCell& cell : row) rows.back().emplace_back(cell.text);
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
  EXPECT_EQ(Read("\"\"\"\",\"a\"\"\"\"b\",\"\"\"c\"\"\""), (Rows{{"\"", "a\"\"b", "\"c\""}}));
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

TEST(CsvReader, FindsTheEndOfEveryCell) {
  EXPECT_TRUE(rc::check([](const std::vector<std::vector<std::string>>& given) {
    Rows rows;
    std::string text;
    for (const auto& cells : given) {
      rows.emplace_back();
      for (std::string cell : cells) {
        std::erase_if(cell, [](char c) { return c == '\0' || c == '"' || c == '\r'; });
        std::erase_if(cell, [](char c) { return c == ';' || c == '\n'; });
        text += (rows.back().empty() ? "" : ";") + cell;
        rows.back().push_back(cell);
      }
      text += "\n";
      const bool is_line = rows.back().size() > 1 || (rows.back().size() == 1 && !cells[0].empty());
      if (!is_line || rows.back() == std::vector<std::string>{""}) rows.pop_back();
    }
    RC_ASSERT(Read("a\n" + text, ';') == [&] {
      rows.insert(rows.begin(), {"a"});
      return rows;
    }());
  }));
}

/// strtod() rounds correctly, too, and takes more texts.
TEST(NumberIn, IsTheNearestDouble) {
  for (const char* text :
       {"0", "-0", "5.", ".5", "-.5", "00.10", "12345678", "1234567.8", "123456789", "+7", "1e5",
        "-1.5E-3", "1e400", "-1e400", "0.1234567890123456789"}) {
    const std::optional<double> number = NumberIn(text);
    ASSERT_TRUE(number) << text;
    EXPECT_EQ(std::bit_cast<uint64_t>(*number), std::bit_cast<uint64_t>(std::strtod(text, nullptr)))
        << text;
  }
  for (const char* text : {"", ".", "-", "+", "-.", "1.2.3", "..", "1-", "--1", "1 ", " 1", "1,5",
                           "/1", "1:", "inf", "nan", "0x10", "1e", "\xb1\xb2"}) {
    EXPECT_FALSE(NumberIn(text)) << text;
  }
  EXPECT_TRUE(rc::check([] {
    const auto whole = *rc::gen::inRange<int64_t>(-99'999'999, 99'999'999);
    std::string text = std::to_string(whole);
    const auto place = *rc::gen::inRange<size_t>(whole < 0 ? 1 : 0, text.size() + 1);
    if (*rc::gen::arbitrary<bool>()) text.insert(place, ".");
    RC_ASSERT(NumberIn(text) == std::strtod(text.c_str(), nullptr));
    text[*rc::gen::inRange<size_t>(0, text.size())] = *rc::gen::inRange<char>(' ', '~');
    char* end = nullptr;
    const double number = std::strtod(text.c_str(), &end);
    const bool is_hex = text.find_first_of("xX ") != text.npos;
    if (end != text.c_str() + text.size() && !is_hex) RC_ASSERT(!NumberIn(text));
    if (end == text.c_str() + text.size() && !is_hex) RC_ASSERT(NumberIn(text) == number);
  }));
}

}  // namespace
}  // namespace strata::data
