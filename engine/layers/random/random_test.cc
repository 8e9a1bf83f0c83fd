#include "engine/layers/random/random.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/base/progress_line.h"
#include "engine/layers/testing.h"

namespace strata {
namespace {

using testing::SameBits;
using Draw = std::function<at::Tensor()>;

/// The result of `draw` in a PyTorch program after torch.manual_seed(seed): it uses the default
/// generator and none of the kernels of random.cc.
at::Tensor AfterManualSeed(uint64_t seed, const Draw& draw) {
  at::manual_seed(seed);
  return draw();
}

at::Tensor InScope(uint64_t seed, const Draw& draw) {
  RandomScope scope(seed);
  return draw();
}

/// All ways in which layers draw numbers.
std::vector<std::pair<std::string, Draw>> Draws() {
  const at::Tensor x = at::arange(4096, at::kFloat).view({64, 64}) / 4096;
  const at::Tensor q = x.view({1, 4, 16, 64});
  return {
      {"dropout", [x] { return at::dropout(x, 0.3, true); }},
      {"feature_dropout", [x] { return at::feature_dropout(x, 0.3, true); }},
      {"native_dropout", [x] { return std::get<0>(at::native_dropout(x, 0.3, true)); }},
      {"attention", [q] { return at::scaled_dot_product_attention(q, q, q, {}, 0.4); }},
      {"uniform_",
       [] {
         return at::empty({100, 7}).uniform_(-0.5, 0.25);
       }},
      {"normal_",
       [] {
         return at::empty({100, 7}).normal_(0, 2);
       }},
      {"normal_ of few", [] { return at::empty({7}).normal_(0, 2); }},
      {"bernoulli_", [] { return at::empty({999}).bernoulli_(0.1); }},
      {"randn",
       [] {
         return at::randn({33, 3});
       }},
      {"rand",
       [] {
         return at::rand({33, 3});
       }},
      {"randint", [] { return at::randint(0, 1000, {50}); }},
      {"randperm", [] { return at::randperm(101); }},
      {"rand_like", [x] { return at::rand_like(x); }},
      {"multinomial", [x] { return at::multinomial(x, 5, true); }},
      {"exponential_", [] { return at::empty({50}).exponential_(2); }},
      {"rrelu", [x] { return at::rrelu(x - 0.5, 0.1, 0.3, true); }},
      {"lstm",
       [x] {
         const at::Tensor w = at::rand({32, 64}), u = at::rand({32, 8}), b = at::rand({32});
         const at::Tensor w2 = at::rand({32, 8});
         const at::Tensor h = at::zeros({2, 8, 8});
         return std::get<0>(at::lstm(x.view({8, 8, 64}), {h, h}, {w, u, b, b, w2, u, b, b}, true, 2,
                                     0.5, true, false, false));
       }},
  };
}

/// Large tensors are drawn in chunks of 2^18 elements by all threads. `before`: elements that are
/// drawn first, so that the generator is anywhere in its state of 624 words.
TEST(RandomScope, DrawsLargeTensorsAsPyTorchDoes) {
  const int threads = at::get_num_threads();
  constexpr int64_t kChunk = 1 << 18;
  for (const int now : {1, 3}) {
    at::set_num_threads(now);
    for (const int64_t count : {2 * kChunk, 2 * kChunk + 1, 3 * kChunk - 16, 3 * kChunk + 17}) {
      for (const int64_t before : {0, 1, 623, 624, 700}) {
        for (const bool is_normal : {false, true}) {
          const Draw draw = [&] {
            const at::Tensor first = at::empty({before}).uniform_(0, 1);
            at::Tensor values = at::empty({count});
            is_normal ? values.normal_(1, 2) : values.uniform_(-1, 3);
            return at::cat({first, values, at::empty({20}).normal_(0, 1), at::randint(0, 99, {9})});
          };
          EXPECT_TRUE(SameBits(InScope(11, draw), AfterManualSeed(11, draw)))
              << now << " threads, " << count << (is_normal ? " normal" : " uniform") << " after "
              << before;
        }
      }
    }
  }
  at::set_num_threads(threads);
}

/// Each chunk of a large tensor is a piece of work, which a user hears of if it takes long.
TEST(RandomScope, SaysHowFarALargeTensorIs) {
  const int threads = at::get_num_threads();
  at::set_num_threads(1);  // two threads may count in another order than they speak
  std::vector<std::string> lines;
  double now = 0;
  SetProgressOutput({.say = [&](const std::string& line) { lines.push_back(line); },
                     .now = [&] { return now += 1.5; }});
  InScope(1, [] { return at::empty({4 << 18}).normal_(0, 1); });
  SetProgressOutput({});
  at::set_num_threads(threads);
  EXPECT_THAT(lines, ::testing::ElementsAre("drawing 1,048,576 random values, 50 %",
                                            "drawing 1,048,576 random values, 100 %"));
}

/// What is no plain float tensor of the CPU is left to ATen, also if it is large.
TEST(RandomScope, DrawsOtherLargeTensorsAsPyTorchDoes) {
  for (const Draw& draw :
       std::vector<Draw>{[] { return at::empty({1 << 20}, at::kDouble).normal_(0, 1); },
                         [] {
                           return at::empty({1024, 1024}).t().uniform_(0, 1);
                         },
                         [] { return at::empty({1 << 20}, at::kBFloat16).uniform_(0, 1); }}) {
    EXPECT_TRUE(SameBits(InScope(3, draw), AfterManualSeed(3, draw)));
  }
  EXPECT_THROW(InScope(3, [] { return at::empty({1 << 20}).normal_(0, -1); }), c10::Error);
}

TEST(RandomScope, DrawsWhatPyTorchDrawsAfterManualSeed) {
  for (const auto& [name, draw] : Draws()) {
    for (const uint64_t seed : {0ull, 1234ull, 0xfedcba9876543210ull}) {
      const at::Tensor expected = AfterManualSeed(seed, draw);
      EXPECT_TRUE(SameBits(InScope(seed, draw), expected)) << name << ", seed " << seed;
    }
    EXPECT_FALSE(SameBits(InScope(1, draw), InScope(2, draw))) << name;
  }
}

TEST(RandomScope, SeveralDrawsGoOnInOneSequence) {
  const Draw two = [] { return at::cat({at::rand({5}), at::randn({20})}); };
  EXPECT_TRUE(SameBits(InScope(7, two), AfterManualSeed(7, two)));
}

TEST(RandomScope, LeavesTheDefaultGeneratorAlone) {
  const Draw draw = [] { return at::rand({10}); };
  at::manual_seed(5);
  const at::Tensor first = draw();
  InScope(9, draw);
  const at::Tensor second = draw();
  at::manual_seed(5);
  EXPECT_TRUE(SameBits(draw(), first));
  EXPECT_TRUE(SameBits(draw(), second));
}

TEST(RandomScope, ANestedScopeDoesNotDisturbTheOuterOne) {
  const at::Tensor expected = AfterManualSeed(3, [] { return at::rand({8}); });
  const at::Tensor inner_expected = AfterManualSeed(99, [] { return at::rand({6}); });
  RandomScope outer(3);
  const at::Tensor first = at::rand({4});
  {
    RandomScope inner(99);
    EXPECT_TRUE(SameBits(at::rand({6}), inner_expected));
    RandomScope innermost(98);
    at::rand({6});
  }
  EXPECT_TRUE(SameBits(at::cat({first, at::rand({4})}), expected));
}

TEST(RandomScope, AGivenGeneratorIsKept) {
  auto own = at::make_generator<at::CPUGeneratorImpl>(21);
  RandomScope scope(3);
  const at::Tensor drawn = at::rand({8}, own);
  EXPECT_TRUE(SameBits(drawn, InScope(21, [] { return at::rand({8}); })));
}

TEST(RandomScope, AutogradFlowsThroughADrawingOperator) {
  const at::Tensor x = at::ones({1000}).set_requires_grad(true);
  RandomScope scope(3);
  const at::Tensor y = at::dropout(x, 0.5, true);
  y.sum().backward();
  EXPECT_TRUE(SameBits(x.grad(), y));
}

TEST(RandomScope, FourThreadsDrawWithoutDisturbingEachOther) {
  const auto draws = Draws();
  std::vector<at::Tensor> expected;
  for (const auto& [name, draw] : draws) expected.push_back(InScope(11, draw));
  std::vector<int> wrong(4);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int round = 0; round < 25; ++round) {
        const size_t i = static_cast<size_t>(round + 4 * t) % draws.size();
        wrong[t] += SameBits(InScope(11, draws[i].second), expected[i]) ? 0 : 1;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4));
}

// The sizes are around 312, the number of elements drawn per state of the generator, and around 8,
// the number in a register.
TEST(RandomScope, DrawsZerosAndOnesAsPyTorchAndGoesOnAsItDoes) {
  for (const int64_t size : {0, 1, 7, 8, 311, 312, 313, 1000, 5000}) {
    for (const double p : {0.0, 0.1, 0.5, 0.9, 1.0}) {
      const Draw draw = [&] {
        const at::Tensor first = at::empty({size}).bernoulli_(p);
        const at::Tensor between = at::rand({3}, at::kDouble);
        return at::cat({first, between, at::empty({size}).bernoulli_(p), at::rand({1})});
      };
      EXPECT_TRUE(SameBits(InScope(5, draw), AfterManualSeed(5, draw))) << size << " " << p;
    }
  }
}

TEST(RandomScope, DrawsZerosAndOnesForEveryTensorAndState) {
  const std::vector<std::function<at::Tensor()>> tensors = {
      [] {
        return at::empty({40, 30});
      },
      [] {
        return at::empty({40, 30}).t();
      },
      [] {
        return at::zeros({40, 30}).narrow(1, 0, 7);
      },
      [] { return at::empty({700}, at::kDouble); },
      [] { return at::empty({700}, at::kLong); },
  };
  for (const auto& make : tensors) {
    for (const int draws_before : {0, 1, 2, 623, 624}) {
      const Draw draw = [&] {
        at::randint(1 << 20, {draws_before});  // takes one draw for each element
        return make().bernoulli_(0.4);
      };
      EXPECT_TRUE(SameBits(InScope(3, draw), AfterManualSeed(3, draw))) << draws_before;
    }
  }
}

TEST(RandomScope, DrawsZerosAndOnesOnlyWithAProbability) {
  const RandomScope scope(1);
  EXPECT_THROW(at::empty({3}).bernoulli_(1.5), c10::Error);
  EXPECT_THROW(at::empty({3}).bernoulli_(std::nan("")), c10::Error);
}

TEST(ForwardSeed, DiffersWhereAnyPartDiffers) {
  std::set<uint32_t> seeds;  // the generator uses 32 bits of a seed
  for (int64_t job : {0, 1, 1234}) {
    for (int64_t micro_batch = 0; micro_batch < 20; ++micro_batch) {
      for (int layer = 0; layer < 20; ++layer) {
        seeds.insert(static_cast<uint32_t>(ForwardSeed(job, micro_batch, layer)));
      }
    }
  }
  EXPECT_EQ(seeds.size(), 3u * 20 * 20);
}

TEST(ForwardSeed, IsTheSameForEver) {  // a resumed training must draw the same numbers
  EXPECT_EQ(ForwardSeed(1234, 0, 0), 0x52b6d2127195ace2u);
  EXPECT_EQ(ForwardSeed(1234, 5, 17), 0xb0d85a6a7581ef13u);
}

TEST(DrawSeedTest, GivesAnotherOneEachTimeAndTheSameOnesAgain) {
  const auto draw = [](uint64_t seed, bool draws_more) {
    const RandomScope scope(seed);
    EXPECT_FALSE(HasDrawn());
    std::vector<uint64_t> seeds = {DrawSeed()};
    EXPECT_TRUE(HasDrawn());
    if (draws_more) at::rand({3});
    seeds.push_back(DrawSeed());
    return seeds;
  };
  const std::vector<uint64_t> seeds = draw(1, false);
  EXPECT_NE(seeds[0], seeds[1]);
  EXPECT_EQ(draw(1, true), seeds);
  EXPECT_NE(draw(2, false)[0], seeds[0]);
}

}  // namespace
}  // namespace strata
