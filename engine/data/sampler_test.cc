#include "engine/data/sampler.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "engine/base/error.h"

namespace strata {
namespace {

SamplerOptions RandomOptions() {
  SamplerOptions options;
  options.samples = *rc::gen::inRange<int64_t>(1, 200);
  options.micro_batch_size = *rc::gen::inRange<int64_t>(1, 12);
  options.micro_batches = *rc::gen::inRange<int64_t>(1, 6);
  options.replicas = *rc::gen::inRange(1, 4);
  options.shuffle = *rc::gen::arbitrary<bool>();
  options.seed = *rc::gen::inRange<int64_t>(0, 1000);
  return options;
}

/// All samples of a step in the order of global micro-batches.
std::vector<int64_t> Step(Sampler& sampler, const SamplerOptions& options, int64_t step) {
  std::vector<int64_t> samples;
  for (int replica = 0; replica < options.replicas; ++replica) {
    for (int64_t m = 0; m < options.micro_batches; ++m) {
      const auto piece = sampler.Indices(step, replica, m);
      samples.insert(samples.end(), piece.begin(), piece.end());
    }
  }
  return samples;
}

TEST(Sampler, GivesEverySampleOnceAnEpoch) {
  EXPECT_TRUE(rc::check([] {
    const SamplerOptions options = RandomOptions();
    Sampler sampler(options);
    for (int64_t epoch = 0; epoch < 2; ++epoch) {
      std::vector<int64_t> seen;
      for (int64_t s = 0; s < sampler.steps_per_epoch(); ++s) {
        const int64_t step = epoch * sampler.steps_per_epoch() + s;
        const auto samples = Step(sampler, options, step);
        RC_ASSERT(static_cast<int64_t>(samples.size()) == sampler.samples(step));
        seen.insert(seen.end(), samples.begin(), samples.end());
      }
      std::sort(seen.begin(), seen.end());
      std::vector<int64_t> all(static_cast<size_t>(options.samples));
      std::iota(all.begin(), all.end(), 0);
      RC_ASSERT(seen == all);
    }
  }));
}

TEST(Sampler, ReplicasSeeWhatOneReplicaWithMoreMicroBatchesSees) {
  EXPECT_TRUE(rc::check([] {
    const SamplerOptions several = RandomOptions();
    SamplerOptions one = several;
    one.replicas = 1;
    one.micro_batches = several.micro_batches * several.replicas;
    Sampler a(several), b(one);
    RC_ASSERT(a.steps_per_epoch() == b.steps_per_epoch());
    for (int64_t step = 0; step < 2 * a.steps_per_epoch(); ++step) {
      RC_ASSERT(Step(a, several, step) == Step(b, one, step));
    }
  }));
}

TEST(Sampler, FillsMicroBatchesFromTheFirst) {
  EXPECT_TRUE(rc::check([] {
    const SamplerOptions options = RandomOptions();
    Sampler sampler(options);
    for (int64_t step = 0; step < sampler.steps_per_epoch(); ++step) {
      const int64_t used = sampler.micro_batches(step);
      for (int64_t m = 0; m < options.micro_batches; ++m) {
        const bool empty = sampler.Indices(step, 0, m).empty();
        RC_ASSERT(empty == (m >= used));
      }
      if (step + 1 < sampler.steps_per_epoch()) RC_ASSERT(used == options.micro_batches);
    }
  }));
}

TEST(Sampler, ShufflesAnewForEveryEpochAndSeed) {
  const SamplerOptions options{100, 10, 10, 1, true, 7};
  Sampler sampler(options), same(options);
  SamplerOptions other = options;
  other.seed = 8;
  Sampler different(other);
  const auto first = Step(sampler, options, 0);
  const auto second = Step(sampler, options, 1);
  EXPECT_NE(first, second);
  EXPECT_NE(first, Step(different, other, 0));
  EXPECT_EQ(second, Step(same, options, 1));
  EXPECT_EQ(first, Step(sampler, options, 0)) << "going back gives the same epoch again";
}

TEST(Sampler, KeepsTheOrderWithoutShuffle) {
  Sampler sampler({7, 2, 2, 1, false, 0});
  EXPECT_EQ(sampler.Indices(0, 0, 1), (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(sampler.Indices(1, 0, 1), (std::vector<int64_t>{6}));
  EXPECT_EQ(sampler.Indices(3, 0, 0), (std::vector<int64_t>{4, 5}));
  EXPECT_EQ(sampler.micro_batches(1), 2);
}

TEST(Sampler, RefusesSizesBelowOne) {
  EXPECT_THROW(Sampler({0, 1, 1, 1, false, 0}), ConfigError);
  EXPECT_THROW(Sampler({1, 0, 1, 1, false, 0}), ConfigError);
  EXPECT_THROW(Sampler({1, 1, 0, 1, false, 0}), ConfigError);
  EXPECT_THROW(Sampler({1, 1, 1, 0, false, 0}), ConfigError);
}

}  // namespace
}  // namespace strata
