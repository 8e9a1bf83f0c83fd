#include "engine/data/files/data_progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "engine/base/progress_line.h"

namespace strata::data {
namespace {

/// What a piece of work of 2.5 s says.
std::string Said(int64_t total) {
  std::string said;
  SetProgressOutput({.say = [&](const std::string& line) { said += line; }});
  {
    DataProgress progress(Reading("data/rows.csv"), total);
    progress.At(30);
    std::this_thread::sleep_for(std::chrono::milliseconds(2500));
  }
  SetProgressOutput({});
  return said;
}

TEST(DataProgress, SaysHowFarItIsAfterTwoSeconds) {
  EXPECT_EQ(Said(100), "reading rows.csv, 30 %");
  EXPECT_EQ(Said(20), "reading rows.csv, 100 %");
  EXPECT_EQ(Said(0), "reading rows.csv");
  const MutedProgress muted;
  EXPECT_EQ(Said(100), "");
}

}  // namespace
}  // namespace strata::data
