#include "engine/data/files/data_progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

namespace strata::data {
namespace {

/// What a piece of work of 2.5 s says.
std::string Said(int64_t total) {
  testing::internal::CaptureStderr();
  {
    DataProgress progress(Reading("data/rows.csv"), total);
    progress.At(30);
    std::this_thread::sleep_for(std::chrono::milliseconds(2500));
  }
  return testing::internal::GetCapturedStderr();
}

TEST(DataProgress, SaysHowFarItIsAfterTwoSeconds) {
  EXPECT_EQ(Said(100), "reading rows.csv, 30 %\n");
  EXPECT_EQ(Said(20), "reading rows.csv, 100 %\n");
  EXPECT_EQ(Said(0), "reading rows.csv\n");
  testing::internal::CaptureStderr();
  { const DataProgress progress(Reading("rows.csv"), 100); }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "") << "it was quick";
  DataProgress::Silence();
  EXPECT_EQ(Said(100), "");
}

}  // namespace
}  // namespace strata::data
