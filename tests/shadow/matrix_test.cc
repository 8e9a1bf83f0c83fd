// Models, schedules, degrees and keys on the shadow devices, over memory and over the fake NCCL:
// the CPU's bits, no race, no access that is not allowed, and how often the host waits. With
// MATRIX=all every combination, as matrix_campaign runs it; its lines are the table of docs/gpu.md.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "engine/base/text.h"
#include "engine/cost/gradient_blocks.h"
#include "engine/layers/head_chunks.h"
#include "engine/layers/kernels/avx512.h"
#include "engine/schedule/generators/generators.h"
#include "tests/shadow/training.h"

namespace strata::shadow {
namespace {

using ::testing::IsEmpty;
using testing::MapOf;

constexpr int kSteps = 2;  // that are counted
const WithGradientBlocks kSmallBlocks(256);

/// What the devices were asked for in the counted steps, by all ranks.
struct Asked {
  int64_t launches = 0, transfers = 0;
  int64_t waits_in_micro_batches = 0, waits_in_steps = 0;
  std::string what;  // waited for
};

/// "3F0" is the action of a micro-batch, "3STEP" is not.
bool IsOfMicroBatch(const std::string& action) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  return !action.empty() && is_digit(action.back());
}

Asked AskedFor(const Outcome& outcome) {
  Asked asked;
  for (const auto& [action, count] : outcome.counts) {
    asked.launches += count.launches;
    asked.transfers += count.transfers;
    (IsOfMicroBatch(action) ? asked.waits_in_micro_batches : asked.waits_in_steps) +=
        count.synchronisations;
    for (const auto& [why, n] : count.synchronising)
      asked.what += Str(" ", action, ":", why, "=", n);
  }
  return asked;
}

/// Where the bits of two outcomes part.
std::string FirstDifference(const Outcome& a, const Outcome& b) {
  const auto [loss, other_loss] = std::ranges::mismatch(a.losses, b.losses);
  const auto [digest, other_digest] = std::ranges::mismatch(a.digests, b.digests);
  std::string text;
  if (loss != a.losses.end() && other_loss != b.losses.end()) {
    text = Str("loss ", loss - a.losses.begin(), " of ", a.losses.size(), ": ",
               Value(*loss).ToJson(), " and ", Value(*other_loss).ToJson(), "; ");
  }
  if (digest != a.digests.end() && other_digest != b.digests.end()) {
    text += Str("parameter ", *digest, " and ", *other_digest);
  }
  return text;
}

void ExpectTheCpusBits(const Case& c) {
  // Products with few rows have kernels of our own on the CPU alone, which add up in another order;
  // here both use ATen's.
  const WithoutAvx2 exact;
  const Outcome cpu = Train(c, "cpu");
  for (const char* transport : {"threads", "nccl"}) {
    SCOPED_TRACE(transport);
    Machine::Get().Reset();
    const Outcome shadow = Train(c, "shadow", transport);
    const bool is_equal = shadow.losses == cpu.losses && shadow.digests == cpu.digests;
    // An accelerator adds up squares in another order, and so clips by a factor that is not the
    // same to the last bit.
    const bool is_clipped =
        std::ranges::any_of(c.more, [](const auto& k) { return k.first == "clip"; });
    // Packed rows have a mask here, on the CPU a call for each document (documents.h).
    const bool is_packed = std::string_view(c.model) == "packed";
    EXPECT_TRUE(is_equal || is_clipped || is_packed) << FirstDifference(shadow, cpu);
    ASSERT_EQ(shadow.losses.size(), cpu.losses.size());
    for (size_t i = 0; i < cpu.losses.size(); ++i) {
      EXPECT_NEAR(shadow.losses[i], cpu.losses[i], 1e-6 * std::abs(cpu.losses[i]));
    }
    ASSERT_EQ(shadow.norms.size(), cpu.norms.size());
    for (size_t i = 0; i < cpu.norms.size(); ++i) {
      // An fp16 step that overflows has no finite norm.
      if (std::isfinite(cpu.norms[i])) {
        EXPECT_NEAR(shadow.norms[i], cpu.norms[i],
                    (is_clipped || is_packed ? 1e-6 : 1e-12) * cpu.norms[i]);
      } else {
        EXPECT_FALSE(std::isfinite(shadow.norms[i])) << shadow.norms[i];
      }
    }
    const auto reports = Machine::Get().reports();
    EXPECT_THAT(reports, IsEmpty());
    const Asked asked = AskedFor(shadow);
    EXPECT_EQ(asked.waits_in_micro_batches, 0) << asked.what;
    EXPECT_LE(asked.waits_in_steps, kSteps * c.ranks()) << asked.what;
    std::printf("| %s | %s | %s | %zu | %ld | %ld | %ld | %.1f |\n", c.Name().c_str(), transport,
                is_equal ? "equal" : "1e-6", reports.size(), asked.launches / kSteps,
                asked.transfers / kSteps, asked.waits_in_micro_batches / kSteps,
                static_cast<double>(asked.waits_in_steps) / kSteps / c.ranks());
  }
}

class MatrixTest : public ::testing::TestWithParam<Case> {};

TEST_P(MatrixTest, HasTheCpusBitsAndNeitherRacesNorStalls) { ExpectTheCpusBits(GetParam()); }

TEST(HeadInChunksTest, HasTheCpusBitsAndNeitherRacesNorStalls) {
  const WithRowsOfChunk rows(20);  // of 64
  for (const Value::Map& more : {Value::Map{}, {{"precision", "fp16"}}, {{"recompute", true}}}) {
    ExpectTheCpusBits({"tokens", "1f1b", 2, 2, 1, more});
  }
}

Value::Map Stages(int n) { return {{"stages_per_rank", n}}; }
Value Half(const char* name, Value::Map more = {}) {
  more.emplace(more.begin(), "1", name);
  return MapOf(std::move(more));
}

/// Each schedule, model and key at least once.
std::vector<Case> Few() {
  return {
      {"dense", "gpipe", 2},
      {"dense", "1f1b", 4},
      {"dense", "interleaved_1f1b", 2, 1, 1, Stages(2)},
      {"dense", "looped_bfs", 2, 1, 1, Stages(2)},
      {"dense", "zb_h2", 2},
      {"dense", "interleaved_zb", 2, 1, 1, Stages(2)},
      {"dense", "zbv", 2, 1, 1, Stages(2)},
      {"dense", "v_half", 2, 1, 1, Stages(2)},
      {"dense", "v_min", 2, 1, 1, Stages(2)},
      {"dense", "dualpipev", 2, 1, 1, Stages(2)},
      {"images", "1f1b", 2, 2},
      {"tokens", "zb_h1", 3},
      {"tied", "1f1b", 2, 2},
      {"tied", "gpipe", 3},
      {"skips", "1f1b", 3},
      {"skips", "1f1b", 1, 2, 1, {{"zero", 2}}},
      {"dense", "1f1b", 2, 1, 1, {{"recompute", true}}},
      {"dense", "1f1b", 2, 2, 1, {{"zero", 1}}},
      {"dense", "1f1b", 2, 2, 1, {{"zero", 2}}},
      {"tied", "looped_bfs", 2, 2, 1, {{"zero", 2}, {"stages_per_rank", 2}}},
      {"dense", "1f1b", 1, 2, 1, {{"clip", 0.1}}},
      {"dense", "1f1b", 2, 2, 1, {{"precision", Half("bf16")}}},
      {"dense", "1f1b", 2, 1, 1, {{"precision", Half("fp16")}}},
      {"skips", "interleaved_1f1b", 2, 1, 1, Stages(2)},
      {"tokens", "1f1b", 2, 1, 1, {{"precision", Half("bf16")}}},
      {"tokens", "1f1b", 2, 1, 2},
      {"tokens", "1f1b", 2, 2, 2},
      {"packed", "1f1b", 2},
  };
}

/// All schedules with all models and degrees, and all keys with all models.
std::vector<Case> Many() {
  std::vector<Case> cases;
  const std::vector<const char*> models = {"dense", "images", "tokens", "tied", "skips"};
  for (const char* model : models) {
    cases.push_back({model});
    for (const auto& [schedule, per_rank] :
         std::vector<std::pair<const char*, int>>{{"gpipe", 1},
                                                  {"1f1b", 1},
                                                  {"zb_h1", 1},
                                                  {"zb_h2", 1},
                                                  {"interleaved_1f1b", 2},
                                                  {"looped_bfs", 2},
                                                  {"interleaved_zb", 2},
                                                  {"zbv", 2},
                                                  {"v_half", 2},
                                                  {"v_min", 2},
                                                  {"dualpipev", 2}}) {
      const int most = std::string(model) == "tied" ? 5 / per_rank : 4;
      for (int pipe = 2; pipe <= std::min(most, 4 / per_rank + per_rank - 1); ++pipe) {
        for (const int data : {1, 2}) {
          cases.push_back(
              {model, schedule, pipe, data, 1, per_rank > 1 ? Stages(per_rank) : Value::Map()});
        }
      }
    }
    for (const int data : {1, 2}) {
      for (const Value::Map& more : std::vector<Value::Map>{
               {{"recompute", true}},
               {{"clip", 0.1}},
               {{"zero", 1}},
               {{"zero", 2}},
               {{"zero", 2}, {"recompute", true}},
               {{"precision", Half("bf16")}},
               {{"precision", Half("bf16", {{"params", "bf16"}})}},
               {{"precision", Half("fp16")}},
               {{"optimizer", MapOf({{"1", "sgd"}, {"lr", 0.01}, {"momentum", 0.9}})}}}) {
        for (const int pipe : {1, 2}) cases.push_back({model, "1f1b", pipe, data, 1, more});
      }
    }
  }
  for (const char* schedule : {"gpipe", "1f1b", "zb_h1"}) {
    for (const int pipe : {1, 2, 3}) {
      for (const int data : {1, 2}) cases.push_back({"tokens", schedule, pipe, data, 2});
    }
  }
  cases.push_back({"tokens", "1f1b", 2, 2, 2, {{"zero", 2}}});
  cases.push_back({"tokens", "1f1b", 2, 1, 2, {{"recompute", true}}});
  return cases;
}

std::vector<Case> Cases() {
  const char* const matrix = std::getenv("MATRIX");
  return matrix && std::string(matrix) == "all" ? Many() : Few();
}

INSTANTIATE_TEST_SUITE_P(Of, MatrixTest, ::testing::ValuesIn(Cases()),
                         [](const auto& info) { return Str(info.index, "_", info.param.Name()); });

/// A schedule that nobody added here is not proven.
TEST(MatrixCasesTest, HasEverySchedule) {
  for (const std::string& name : schedule::TriedSchedules()) {
    for (const auto& cases : {Few(), Many()}) {
      const auto has = [&](const Case& c) { return name == c.schedule; };
      EXPECT_TRUE(std::ranges::any_of(cases, has)) << name;
    }
  }
}

}  // namespace
}  // namespace strata::shadow
