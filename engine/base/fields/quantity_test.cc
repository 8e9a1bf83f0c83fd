#include "engine/base/fields/quantity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/layers/testing_spec.h"

namespace strata {
namespace {

using testing::HasSubstr;

TEST(Quantity, ReadsWhatPeopleWrite) {
  EXPECT_EQ(ParseBytes("80GB", "memory"), 80e9);
  EXPECT_EQ(ParseBytes("1.5 GiB", "memory"), 1.5 * 1024 * 1024 * 1024);
  EXPECT_EQ(ParseBytes(1000, "memory"), 1000);
  EXPECT_EQ(ParseBandwidth("25GB/s", "link"), 25e9);
  EXPECT_EQ(ParseBandwidth("200Gb/s", "link"), 25e9);
  EXPECT_EQ(ParseSeconds("5us", "latency"), 5e-6);
  EXPECT_EQ(ParseRate("19.5T", "flops"), 19.5e12);
  EXPECT_EQ(ParseRate("2 PFLOP/s", "flops"), 2e15);
}

TEST(Quantity, RefusesTheRest) {
  for (const char* text : {"", "GB", "80XB", "-1GB", "80GB/s", "inf", "nan", "1e999", "80 G B"}) {
    EXPECT_THAT(ErrorOf([&] { ParseBytes(text, "memory"); }),
                HasSubstr("memory: expected a number of at least 0, or a text such as \"80GB\""))
        << text;
  }
  EXPECT_THAT(ErrorOf([] { ParseSeconds(true, "latency"); }), HasSubstr("latency: expected"));
}

TEST(Quantity, WritesBandwidths) {
  EXPECT_EQ(FormatBandwidth(0), "0 B/s");
  EXPECT_EQ(FormatBandwidth(25e9), "25 GB/s");
  EXPECT_EQ(FormatBandwidth(999.4e9), "999 GB/s");
  EXPECT_EQ(FormatBandwidth(999.7e9), "1 TB/s");
}

TEST(Quantity, WritesEnoughBytes) {
  EXPECT_EQ(FormatAtLeast(0), "0 B");
  EXPECT_EQ(FormatAtLeast(1024), "1.00 KiB");
  for (int64_t bytes = 1; bytes < int64_t{1} << 45; bytes += 1 + bytes / 7) {
    const double read = ParseBytes(FormatAtLeast(bytes), "memory");
    EXPECT_GE(read, static_cast<double>(bytes));
    EXPECT_LE(read, 1.01 * static_cast<double>(bytes));
  }
}

}  // namespace
}  // namespace strata
