#include "launcher/report/flight_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "engine/base/full_disk.h"

namespace strata::launcher {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

TEST(FlightFile, HalfOfOneDoesNotStay) {
  const std::string folder = ::testing::TempDir() + "/flight_file";
  fs::remove_all(folder);
  const Value record = Value::MakeMap({{"text", std::string(10'000, 'x')}});
  {
    const FullDisk full(4096);
    EXPECT_THAT(WriteFlightFile(record, folder), HasSubstr("the flight record is lost: "));
  }
  EXPECT_TRUE(fs::is_empty(folder));
  EXPECT_THAT(WriteFlightFile(record, folder), HasSubstr("flight record of all ranks: "));
  EXPECT_FALSE(fs::is_empty(folder));
}

}  // namespace
}  // namespace strata::launcher
