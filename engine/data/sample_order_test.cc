#include "engine/data/sample_order.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace strata {
namespace {

TEST(Permutation, HasEveryNumberOnce) {
  EXPECT_TRUE(rc::check([] {
    const auto size = *rc::gen::inRange<int64_t>(1, 5000);
    const Permutation permutation(size, *rc::gen::arbitrary<uint64_t>());
    std::vector<bool> seen(static_cast<size_t>(size));
    for (int64_t place = 0; place < size; ++place) {
      const int64_t index = permutation[place];
      RC_ASSERT(index >= 0 && index < size && !seen[static_cast<size_t>(index)]);
      seen[static_cast<size_t>(index)] = true;
    }
  }));
}

/// The statistic of a chi-square test that all counts have the same expectation.
double ChiSquare(const std::vector<int64_t>& counts) {
  const double expected = static_cast<double>(std::reduce(counts.begin(), counts.end())) /
                          static_cast<double>(counts.size());
  double sum = 0;
  for (const int64_t count : counts) {
    const double change = static_cast<double>(count) - expected;
    sum += change * change / expected;
  }
  return sum;
}

// With k cells the statistic has mean k - 1 and deviation sqrt(2 (k - 1)); five deviations are
// allowed. The seeds are fixed, so the test cannot fail by chance.
TEST(Permutation, EveryPlaceIsLikelyForEverySample) {
  for (const int64_t size : {8, 10}) {
    std::vector<int64_t> counts(static_cast<size_t>(size * size));
    for (uint64_t seed = 0; seed < 20000; ++seed) {
      const Permutation permutation(size, seed);
      for (int64_t i = 0; i < size; ++i) ++counts[static_cast<size_t>(i * size + permutation[i])];
    }
    // The sums of rows and columns are fixed.
    const double freedom = static_cast<double>((size - 1) * (size - 1));
    EXPECT_NEAR(ChiSquare(counts), freedom, 5 * std::sqrt(2 * freedom)) << size;
  }
}

TEST(Permutation, NeighboursGetUnrelatedPlaces) {
  constexpr int64_t kSize = 3'000'000'000, kCells = 16;
  const auto cell = [](int64_t index) { return index / (kSize / kCells + 1); };
  for (uint64_t seed = 0; seed < 4; ++seed) {
    const Permutation permutation(kSize, seed);
    std::vector<int64_t> pairs(kCells * kCells), low(256);
    for (int64_t i = 0; i < 100'000; ++i) {
      const int64_t one = permutation[i], next = permutation[i + 1];
      ++pairs[static_cast<size_t>(cell(one) * kCells + cell(next))];
      ++low[static_cast<size_t>((one ^ next) % 256)];
    }
    for (const auto* counts : {&pairs, &low}) {
      EXPECT_NEAR(ChiSquare(*counts), 255, 5 * std::sqrt(2 * 255.0)) << seed;
    }
  }
}

TEST(SampleOrder, LongOrdersAreComputed) {
  constexpr int64_t kSize = SampleOrder::kMostListed + 1;
  const SampleOrder order = SampleOrder::Shuffled(kSize, 3),
                    again = SampleOrder::Shuffled(kSize, 3);
  const Permutation permutation(kSize, 3), other(kSize, 4);
  const SampleOrder part = order.Part(1000, 3000).Part(500, 700);
  EXPECT_EQ(part.size(), 200);
  int64_t equal = 0;
  for (int64_t place = 0; place < 200; ++place) {
    EXPECT_EQ(part[place], permutation[1500 + place]);
    EXPECT_EQ(again[1500 + place], permutation[1500 + place]);
    equal += part[place] == other[1500 + place] ? 1 : 0;
  }
  EXPECT_LT(equal, 3) << "the seed matters";
}

TEST(SampleOrder, PartsOfEveryOrderAreItsPlaces) {
  for (const SampleOrder& order : {SampleOrder(100), SampleOrder::Shuffled(100, 7)}) {
    const SampleOrder part = order.Part(20, 90).Part(5, 30);
    EXPECT_EQ(part.size(), 25);
    for (int64_t place = 0; place < 25; ++place) EXPECT_EQ(part[place], order[25 + place]);
  }
}

TEST(SampleOrder, WindowsHaveEverySampleOnceAndReadRuns) {
  EXPECT_TRUE(rc::check([] {
    const auto size = *rc::gen::inRange<int64_t>(1, 3000);
    const auto window = *rc::gen::inRange<int64_t>(1, 1000);
    const SampleOrder order = SampleOrder::Windowed(size, window, *rc::gen::arbitrary<uint64_t>());
    const int64_t run = std::max<int64_t>(1, window / SampleOrder::kRuns);
    std::vector<bool> seen(static_cast<size_t>(size));
    for (int64_t begin = 0; begin < size; begin += SampleOrder::kRuns * run) {
      const int64_t end = std::min(size, begin + SampleOrder::kRuns * run);
      std::vector<int64_t> window_samples;
      for (int64_t place = begin; place < end; ++place) {
        const int64_t index = order[place];
        RC_ASSERT(index >= 0 && index < size && !seen[static_cast<size_t>(index)]);
        seen[static_cast<size_t>(index)] = true;
        window_samples.push_back(index);
      }
      if (window >= size) continue;
      // Samples that follow each other are read together: a window has few runs of them.
      std::ranges::sort(window_samples);
      int64_t runs = 1;
      for (size_t i = 1; i < window_samples.size(); ++i) {
        runs += window_samples[i] != window_samples[i - 1] + 1;
      }
      RC_ASSERT(runs <= SampleOrder::kRuns + 2);  // a rest, and one run around the end of the data
    }
  }));
}

// Trainings resume in the middle of such an order, so it must never change.
TEST(SampleOrder, WindowsAreTheSameForever) {
  const SampleOrder order = SampleOrder::Windowed(100, 32, 7);
  std::vector<int64_t> first;
  for (int64_t place = 0; place < 8; ++place) first.push_back(order[place]);
  EXPECT_EQ(first, (std::vector<int64_t>{80, 57, 70, 45, 78, 39, 62, 15}));
  const SampleOrder large = SampleOrder::Windowed(1'000'000'000, 100'000, 7);
  EXPECT_EQ(large[123'456'789], 618'793'439);
}

}  // namespace
}  // namespace strata
