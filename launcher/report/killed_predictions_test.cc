// Kills a prediction before each call that changes the disk, and kills the run that continues it
// likewise. In the end the file must be the one that a single run writes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "engine/base/testing.h"
#include "engine/base/text.h"
#include "engine/checkpoint/files/killing.h"
#include "engine/checkpoint/testing.h"
#include "launcher/report/predictions.h"

namespace strata::launcher {
namespace {

constexpr int64_t kParts = 4;

/// Two rows of each of `outputs` outputs; the numbers depend on the part.
Predicted PartOf(int64_t part, int outputs) {
  std::vector<OutputRows> block;
  for (int k = 0; k < outputs; ++k) {
    const float first = static_cast<float>(part + k) / 3;
    const std::array<float, 4> values = {first, 1, 2, -first};
    block.push_back({{{2, 2}, DType::kFloat32},
                     std::string(reinterpret_cast<const char*>(values.data()), sizeof(values))});
  }
  return {block};
}

/// The loop of the command `strata predict`.
void Predict(const std::string& path) {
  Predictions predictions(path, {}, "digits");
  for (int64_t part = predictions.parts(); part < kParts; ++part) {
    predictions.Add(PartOf(part, path.ends_with("two.safetensors") ? 2 : 1));
  }
  predictions.Finish();
}

class KilledPredictionsTest : public testing::TestWithParam<const char*> {};

TEST_P(KilledPredictionsTest, AreWholeOrGoneOnWith) {
  const TestFolder reference;
  Predict(reference.Inside(GetParam()));
  const std::string whole = ReadText(reference.Inside(GetParam()));
  bool is_over = false;
  for (int first = 0; !is_over; ++first) {
    for (const int second : {0, 1, 2, 5, 1000}) {
      const TestFolder folder;
      const std::string path = folder.Inside(GetParam());
      const auto killed = [&](int count) {
        return KilledBefore(count, folder.path(), [&] { Predict(path); });
      };
      is_over = !killed(first);
      if (!std::filesystem::exists(path)) killed(second);
      if (!std::filesystem::exists(path)) Predict(path);
      EXPECT_EQ(ReadText(path), whole) << first << " " << second;
      EXPECT_FALSE(std::filesystem::exists(path + ".part")) << first << " " << second;
    }
    ASSERT_LT(first, 100);
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, KilledPredictionsTest,
                         testing::Values("a.csv", "a.jsonl", "a.npy", "a.safetensors",
                                         "two.safetensors"));

}  // namespace
}  // namespace strata::launcher
