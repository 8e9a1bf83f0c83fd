// What writes weights is killed before each call that changes the disk: there is the whole or
// nothing, and another process can write it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>

#include "engine/checkpoint/files/killing.h"
#include "engine/checkpoint/saves/testing.h"
#include "engine/checkpoint/weights/exported.h"
#include "engine/checkpoint/weights/write_weights.h"

namespace strata {
namespace {

namespace fs = std::filesystem;

class KilledWritingTest : public testing::Test {
 protected:
  KilledWritingTest() {
    WriteTestWeights(in_.Inside("in.safetensors"),
                     {{"a", {2, 2}, 1}, {"b", {3}, 10}, {"c", {1}, 20}});
    source_ = Checkpoint::Open(in_.Inside("in.safetensors"));
    weights_.emplace(*source_, WeightMap());
    tensors_ = Exported(*weights_);
  }

  /// `write` makes `name` in an empty folder.
  void ExpectWholeOrNothing(const std::string& name,
                            const std::function<void(const std::string&)>& write) {
    int kills = 0;
    for (bool is_over = false; !is_over; ++kills) {
      const TestFolder folder;
      const std::string out = folder.Inside(name);
      is_over = !KilledBefore(kills, folder.path(), [&] { write(out); });
      const bool is_there = fs::exists(out);
      if (!is_there) write(out);
      EXPECT_EQ(Checkpoint::Open(out)->manifest().tensors.size(), 3U) << kills << is_there;
      EXPECT_TRUE(is_there || !is_over);
    }
    EXPECT_GT(kills, 5);
  }

  TestFolder in_;
  std::unique_ptr<Checkpoint> source_;
  std::optional<MappedWeights> weights_;
  std::vector<MappedTensor> tensors_;
};

TEST_F(KilledWritingTest, Import) {
  ExpectWholeOrNothing("out.safetensors",
                       [&](const std::string& out) { WriteWeights(*weights_, tensors_, out); });
}

TEST_F(KilledWritingTest, Export) {
  ExpectWholeOrNothing(
      "out", [&](const std::string& out) { WritePublished(*weights_, tensors_, out, 16); });
}

}  // namespace
}  // namespace strata
