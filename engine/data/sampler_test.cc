#include "engine/data/sampler.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <sys/resource.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "engine/base/testing.h"

namespace strata {
namespace {

SamplerOptions RandomOptions() {
  SamplerOptions options;
  options.samples = *rc::gen::inRange<int64_t>(1, 200);
  options.micro_batch_size = *rc::gen::inRange<int64_t>(1, 12);
  options.micro_batches = *rc::gen::inRange<int64_t>(1, 6);
  options.replicas = *rc::gen::inRange(1, 4);
  options.shuffle = *rc::gen::arbitrary<bool>();
  options.window = *rc::gen::element<int64_t>(0, 1, 20);
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
        const auto of_last = sampler.Indices(step, options.replicas - 1, options.micro_batches - 1);
        RC_ASSERT(sampler.fills_all(step) == !of_last.empty());
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

TEST(Sampler, TheOrderIsTheSameOnEveryMachine) {
  // The expected order was computed in another language from the standard's mt19937_64 and
  // Fisher-Yates.
  Sampler sampler({10, 10, 1, 1, true, 1234});
  EXPECT_EQ(sampler.Indices(0, 0, 0), (std::vector<int64_t>{1, 6, 9, 0, 4, 3, 5, 7, 2, 8}));
  EXPECT_EQ(sampler.Indices(1, 0, 0), (std::vector<int64_t>{6, 2, 5, 0, 4, 9, 3, 7, 8, 1}));
  EXPECT_EQ(Sampler({10, 10, 1, 1, true, 0}).Indices(0, 0, 0),
            (std::vector<int64_t>{7, 2, 0, 8, 3, 9, 6, 1, 5, 4}));
}

TEST(Sampler, EveryPlaceIsLikelyForEverySample) {
  constexpr int kSamples = 8, kSeeds = 4000;
  int counts[kSamples][kSamples] = {};
  for (int64_t seed = 0; seed < kSeeds; ++seed) {
    Sampler sampler({kSamples, kSamples, 1, 1, true, seed});
    const std::vector<int64_t> order = sampler.Indices(0, 0, 0);
    for (size_t place = 0; place < kSamples; ++place) ++counts[place][order[place]];
  }
  for (const auto& row : counts) {
    for (const int count : row) EXPECT_NEAR(count, kSeeds / kSamples, 110);  // five deviations
  }
}

TEST(Sampler, SizesDoNotMatterToTheOrder) {
  EXPECT_TRUE(rc::check([] {
    SamplerOptions options = RandomOptions();
    options.replicas = 1;
    SamplerOptions single = options;
    single.micro_batch_size = single.micro_batches = 1;
    Sampler a(options), b(single);
    std::vector<int64_t> order, expected;
    for (int64_t step = 0; step < a.steps_per_epoch(); ++step) {
      const auto samples = Step(a, options, step);
      order.insert(order.end(), samples.begin(), samples.end());
    }
    for (int64_t step = 0; step < options.samples; ++step) {
      expected.push_back(b.Indices(step, 0, 0).at(0));
    }
    RC_ASSERT(order == expected);
  }));
}

TEST(Sampler, StepsCountOnOverEpochs) {
  EXPECT_TRUE(rc::check([] {
    const SamplerOptions options = RandomOptions();
    Sampler sampler(options);
    const int64_t steps = sampler.steps_per_epoch();
    const auto epoch = *rc::gen::inRange<int64_t>(1, 50);
    const auto step = *rc::gen::inRange<int64_t>(0, steps);
    RC_ASSERT(sampler.samples(step) == sampler.samples(epoch * steps + step));
    RC_ASSERT(sampler.micro_batches(step) == sampler.micro_batches(epoch * steps + step));
    if (options.shuffle) return;
    RC_ASSERT(Step(sampler, options, step) == Step(sampler, options, epoch * steps + step));
  }));
}

/// The results must not depend on the order of the calls, since ranks ask for different steps.
TEST(Sampler, KeepsNothingButTheEpoch) {
  EXPECT_TRUE(rc::check([] {
    const SamplerOptions options = RandomOptions();
    Sampler asked(options);
    for (int round = 0; round < 20; ++round) {
      const auto step = *rc::gen::inRange<int64_t>(0, 3 * asked.steps_per_epoch());
      Sampler fresh(options);
      RC_ASSERT(Step(asked, options, step) == Step(fresh, options, step));
    }
  }));
}

TEST(Sampler, PiecesAreFullButForTheLast) {
  EXPECT_TRUE(rc::check([] {
    const SamplerOptions options = RandomOptions();
    Sampler sampler(options);
    int64_t left = options.samples;
    for (int64_t step = 0; step < sampler.steps_per_epoch(); ++step) {
      for (int replica = 0; replica < options.replicas; ++replica) {
        for (int64_t m = 0; m < options.micro_batches; ++m) {
          const auto size = static_cast<int64_t>(sampler.Indices(step, replica, m).size());
          RC_ASSERT(size == std::min(left, options.micro_batch_size));
          left -= size;
        }
      }
    }
    RC_ASSERT(left == 0);
  }));
}

TEST(Sampler, OneStepMayHoldMoreThanThereIs) {
  constexpr int64_t kHuge = 2147483647;
  for (const int replicas : {1, 4, 2147483647}) {
    Sampler sampler({5, kHuge, kHuge, replicas, false, 0});
    EXPECT_EQ(sampler.steps_per_epoch(), 1);
    EXPECT_EQ(sampler.samples(7), 5);
    EXPECT_EQ(sampler.micro_batches(7), 1);
    EXPECT_EQ(sampler.Indices(7, 0, 0).size(), 5u);
    EXPECT_TRUE(sampler.Indices(7, 0, 1).empty());
    EXPECT_TRUE(sampler.Indices(7, replicas - 1, kHuge - 1).empty());
  }
  Sampler single({kHuge, kHuge, 1, 1, false, 0});
  EXPECT_EQ(single.steps_per_epoch(), 1);
}

TEST(Sampler, ManySamplesResumeInAnOrderThatTakesNoMemory) {
  constexpr int64_t kSamples = 1'000'000'000;
  const SamplerOptions options{kSamples, 64, 2, 1, true, 7};
  Sampler sampler(options), resumed(options);
  for (int64_t step = 0; step < 5; ++step) Step(sampler, options, step);
  EXPECT_EQ(Step(sampler, options, 5), Step(resumed, options, 5));
  const int64_t second = sampler.steps_per_epoch() + 5;
  EXPECT_EQ(Step(sampler, options, second), Step(resumed, options, second));
  EXPECT_NE(Step(sampler, options, 5), Step(sampler, options, second));
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  EXPECT_LT(usage.ru_maxrss, 500'000) << "KiB";
}

TEST(Sampler, SaysWhichSizeIsBelowOne) {
  const auto error = [](const SamplerOptions& options) {
    return ConfigErrorOf([&] { Sampler sampler(options); });
  };
  EXPECT_EQ(error({0, 1, 1, 1, false, 0}), "the number of samples must be at least 1, got 0");
  EXPECT_EQ(error({1, -3, 1, 1, false, 0}), "micro_batch_size must be at least 1, got -3");
  EXPECT_EQ(error({1, 1, 0, 1, false, 0}), "micro_batches must be at least 1, got 0");
  EXPECT_EQ(error({1, 1, 1, 0, false, 0}), "the number of replicas must be at least 1, got 0");
}

}  // namespace
}  // namespace strata
