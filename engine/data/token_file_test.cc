// Tests the samples of token files, and that a large file costs no memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "engine/data/testing.h"
#include "engine/data/testing_sources.h"

namespace strata {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class TokenFileTest : public DatasetTest {
 protected:
  std::unique_ptr<Dataset> OpenTokens(const std::string& path, Value::Map options) {
    options.emplace_back("path", path);
    return OpenDataset(SpecOf(MakeDataSource("token_file", {}, options, ""), context_), context_);
  }
};

int64_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  int64_t all = 0, resident = 0;
  file >> all >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

TEST_F(TokenFileTest, GivesPiecesAndTheNextTokens) {
  const std::string path = Write("a.bin", std::string("\1\0\2\0\3\0\0\1\377\377", 10));
  const auto tokens = OpenTokens(path, {{"length", 2}});
  EXPECT_EQ(tokens->size(), 2);
  EXPECT_THAT(Ints(*tokens, 0, false), ElementsAre(1, 2));
  EXPECT_THAT(Ints(*tokens, 0, true), ElementsAre(2, 3));
  EXPECT_THAT(Ints(*tokens, 1, false), ElementsAre(3, 256));
  EXPECT_THAT(Ints(*tokens, 1, true), ElementsAre(256, 65535));
}

TEST_F(TokenFileTest, NamesWhatIsWrong) {
  const std::string path = Write("a.bin", "abcdefg");
  const auto error_of = [&](const Value::Map& options) {
    return strata::ErrorOf([&] {
      const auto tokens = OpenTokens(path, options);
      for (int64_t i = 0; i < tokens->size(); ++i) Ints(*tokens, i, true);
    });
  };
  EXPECT_THAT(error_of({{"length", 2}}), HasSubstr("a.bin: expected at least 3 tokens of 2 bytes"));
  EXPECT_THAT(error_of({{"length", 7}, {"dtype", "uint8"}}), HasSubstr("got 7 bytes"));
  EXPECT_THAT(error_of({{"length", 2}, {"dtype", "uint8"}, {"vocabulary", 100}}),
              HasSubstr("a.bin: token 3 is 100, expected 0 to 99"));
}

/// A hundred million tokens in a sparse file: opening it must read nothing, and reading pieces must
/// read only these.
TEST_F(TokenFileTest, ALargeFileCostsNoMemory) {
  constexpr int64_t kTokens = 100'000'000;
  const std::string path = Write("large.bin", "");
  std::filesystem::resize_file(path, 2 * kTokens);
  const int64_t before = ResidentBytes();
  const auto tokens = OpenTokens(path, {{"length", 1024}});
  EXPECT_EQ(tokens->size(), (kTokens - 1) / 1024);
  int64_t sum = 0;
  for (int64_t i = 0; i < tokens->size(); i += 97) sum += Ints(*tokens, i, false)[7];
  EXPECT_EQ(sum, 0);
  EXPECT_LT(ResidentBytes() - before, 50 << 20);
}

}  // namespace
}  // namespace strata
