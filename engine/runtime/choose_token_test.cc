#include "engine/runtime/choose_token.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/testing.h"

namespace strata {
namespace {

TextRequest Sampling(double temperature, int64_t top_k, double top_p) {
  TextRequest request;
  request.temperature = temperature;
  request.top_k = top_k;
  request.top_p = top_p;
  return request;
}

/// The probabilities of all tokens as the samplers of transformers compute them, applied in order.
std::vector<double> Probabilities(const std::vector<float>& scores, const TextRequest& request) {
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return scores[a] > scores[b]; });
  const size_t kept = request.top_k == 0 ? scores.size() : static_cast<size_t>(request.top_k);
  std::vector<double> shares(scores.size());
  const auto normalize = [&] {
    const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
    for (double& share : shares) share /= sum;
  };
  for (size_t i = 0; i < std::min(kept, order.size()); ++i) {
    shares[order[i]] = std::exp(scores[order[i]] / request.temperature);
  }
  normalize();
  double before = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    const double share = shares[order[i]];
    if (i > 0 && before >= request.top_p) shares[order[i]] = 0;
    before += share;
  }
  normalize();
  return shares;
}

const std::vector<float> kScores = {0.5, 3, -1, 2, 2.5, 0, -4, 1};

TEST(ChooseTokenTest, TemperatureZeroTakesTheFirstOfTheHighest) {
  EXPECT_EQ(ChooseToken(kScores, Sampling(0, 40, 0.95), 0.99), 1);
  const std::vector<float> equal = {1, 2, 2, 0};
  EXPECT_EQ(ChooseToken(equal, Sampling(0, 0, 1), 0.99), 1);
}

TEST(ChooseTokenTest, DrawsBySharesAsTransformersDoes) {
  constexpr int kDraws = 20000;
  for (const TextRequest& request : {Sampling(1, 0, 1), Sampling(0.7, 3, 1), Sampling(1.5, 0, 0.8),
                                     Sampling(0.8, 4, 0.9), Sampling(2, 100, 0.01)}) {
    std::vector<double> counts(kScores.size());
    // The draws are equidistant, so each probability is met within one draw.
    for (int i = 0; i < kDraws; ++i) {
      ++counts[static_cast<size_t>(ChooseToken(kScores, request, (i + 0.5) / kDraws))];
    }
    const std::vector<double> expected = Probabilities(kScores, request);
    for (size_t token = 0; token < kScores.size(); ++token) {
      EXPECT_NEAR(counts[token] / kDraws, expected[token], 2.0 / kDraws)
          << "token " << token << ", temperature " << request.temperature << ", top_k "
          << request.top_k << ", top_p " << request.top_p;
    }
  }
}

TEST(ChooseTokenTest, LeavesOutTokensThatNobodyKnows) {
  TextRequest request = Sampling(0, 0, 1);
  request.vocabulary = 1;
  EXPECT_EQ(ChooseToken(kScores, request, 0), 0);
}

TEST(ChooseTokenTest, RefusesScoresThatAreNotFinite) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> some = {nan, 1, nan, 2};
  EXPECT_EQ(ChooseToken(some, Sampling(0, 0, 1), 0), 3);
  const std::vector<float> none = {nan, nan};
  EXPECT_THAT(ErrorOf([&] { ChooseToken(none, Sampling(1, 0, 1), 0); }),
              ::testing::HasSubstr("not finite"));
}

TEST(ChooseTokenTest, DrawsAreBySeedPromptAndPlace) {
  std::set<double> draws;
  double sum = 0;
  for (int64_t seed = 0; seed < 5; ++seed) {
    for (int64_t prompt = 0; prompt < 5; ++prompt) {
      for (int64_t place = 0; place < 40; ++place) {
        const double draw = DrawOf(seed, prompt, place);
        EXPECT_GE(draw, 0);
        EXPECT_LT(draw, 1);
        draws.insert(draw);
        sum += draw;
      }
    }
  }
  EXPECT_EQ(draws.size(), 1000u);
  EXPECT_NEAR(sum / 1000, 0.5, 0.05);
  EXPECT_EQ(DrawOf(3, 1, 7), DrawOf(3, 1, 7));
}

}  // namespace
}  // namespace strata
