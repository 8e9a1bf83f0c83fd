// What fuzzing came upon, and the files of all other tests, changed a little, for every reader.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "tests/fuzz/readers.h"

namespace strata::fuzz {
namespace {

namespace fs = std::filesystem;

constexpr int kChanges = 1000;
constexpr size_t kLongest = 20'000;  // as in the campaign

std::string Content(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// A text of pairs of hex digits.
std::string FromHex(const std::string& digits) {
  std::string bytes;
  for (size_t i = 0; i + 1 < digits.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

/// corpus/NAME: an input a line.
std::vector<std::string> Corpus(const std::string& name) {
  std::vector<std::string> inputs;
  std::ifstream file("tests/fuzz/corpus/" + name);
  for (std::string line; std::getline(file, line);) inputs.push_back(FromHex(line));
  return inputs;
}

std::vector<std::string> FilesOfOthers() {
  std::vector<std::string> inputs;
  for (const char* folder : {"engine/checkpoint/testdata", "engine/data/testdata",
                             "engine/schedule/testdata", "tests/formats"}) {
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
      if (entry.is_regular_file() && entry.file_size() <= kLongest)
        inputs.push_back(Content(entry.path()));
    }
  }
  return inputs;
}

class ReplayTest : public testing::TestWithParam<Reader> {};

/// An exception that is no Error, a crash or a hang ends the test.
TEST_P(ReplayTest, TakesOrRefuses) {
  const std::vector<std::string> corpus = Corpus(GetParam().name);
  ASSERT_FALSE(corpus.empty()) << "tests/fuzz/corpus/" << GetParam().name;
  int taken = 0, refused = 0;
  std::string why;
  for (const std::string& input : corpus) (Takes(GetParam(), input, &why) ? taken : refused) += 1;
  const bool never_takes = GetParam().name == std::string("wire_host");
  const bool never_refuses = GetParam().name == std::string("wire_guest");
  EXPECT_TRUE(taken > 0 || never_takes) << "the corpus has nothing that is right; last: " << why;
  EXPECT_TRUE(refused > 0 || never_refuses);
}

/// A byte changed, added or left out, the end cut off, or two of them put together.
TEST_P(ReplayTest, ChangedALittle) {
  std::vector<std::string> inputs = Corpus(GetParam().name);
  for (std::string& file : FilesOfOthers()) {
    if (Takes(GetParam(), file)) inputs.push_back(std::move(file));
  }
  std::mt19937 random(7);
  const auto below = [&](size_t count) { return random() % std::max<size_t>(count, 1); };
  for (int i = 0; i < kChanges; ++i) {
    std::string input = inputs[below(inputs.size())];
    for (size_t changes = 1 + below(3); changes > 0 && !input.empty(); --changes) {
      const size_t at = below(input.size());
      switch (below(5)) {
        case 0:
          input[at] ^= static_cast<char>(1 << below(8));
          break;
        case 1:
          input.insert(at, 1 + below(4), static_cast<char>(random()));
          break;
        case 2:
          input.erase(at, 1 + below(4));
          break;
        case 3:
          input.resize(at);
          break;
        default:
          const std::string& other = inputs[below(inputs.size())];
          input.replace(at, std::string::npos, other, below(other.size()), kLongest);
      }
    }
    Takes(GetParam(), input);
  }
}

INSTANTIATE_TEST_SUITE_P(Readers, ReplayTest, testing::ValuesIn(Readers().begin(), Readers().end()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace strata::fuzz
