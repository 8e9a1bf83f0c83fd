#include "launcher/report/flight_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <string>

namespace strata::launcher {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

TEST(FlightFile, HalfOfOneDoesNotStay) {
  const std::string folder = ::testing::TempDir() + "/flight_file";
  fs::remove_all(folder);
  const Value record = Value::MakeMap({{"text", std::string(10'000, 'x')}});
  rlimit before;
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit limit = {4096, before.rlim_max};
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  const std::string told = WriteFlightFile(record, folder);
  ::setrlimit(RLIMIT_FSIZE, &before);
  ::signal(SIGXFSZ, handler);
  EXPECT_THAT(told, HasSubstr("the flight record is lost: "));
  EXPECT_TRUE(fs::is_empty(folder));
  EXPECT_THAT(WriteFlightFile(record, folder), HasSubstr("flight record of all ranks: "));
  EXPECT_FALSE(fs::is_empty(folder));
}

}  // namespace
}  // namespace strata::launcher
