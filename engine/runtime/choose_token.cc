// Sampling by temperature, top_k and top_p. The scores of the top_k tokens are sorted (a partial
// sort: the cost is about the vocabulary times log top_k), converted to weights exp((score -
// highest) / temperature), and cut where their sum reaches top_p of the total. Then `draw`, as a
// share of the remaining sum, selects the token in whose interval it falls.
#include "engine/runtime/choose_token.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/layers/random/random.h"

namespace strata {
namespace {

/// The number of tokens that remain by rank (top_k) of `count` tokens.
size_t Candidates(size_t count, const TextRequest& request) {
  if (request.temperature == 0) return 1;
  return request.top_k == 0 ? count : std::min(count, static_cast<size_t>(request.top_k));
}

/// Returns the `kept` tokens with the highest scores, the highest first.
std::vector<int32_t> Highest(std::span<const float> scores, size_t kept) {
  std::vector<int32_t> tokens(scores.size());
  std::iota(tokens.begin(), tokens.end(), 0);
  // NaN counts as lower than all numbers, so that this is a strict order.
  const auto score = [&](int32_t token) {
    const float value = scores[static_cast<size_t>(token)];
    return std::isnan(value) ? -INFINITY : value;
  };
  const auto is_before = [&](int32_t a, int32_t b) {
    return score(a) != score(b) ? score(a) > score(b) : a < b;
  };
  std::ranges::partial_sort(tokens, tokens.begin() + static_cast<std::ptrdiff_t>(kept), is_before);
  tokens.resize(kept);
  const float highest = score(tokens.front());
  if (!std::isfinite(highest)) {
    throw ConfigError(Str("the model's highest score of a next token is ", highest,
                          ": its weights are not those of a language model, or not finite"));
  }
  return tokens;
}

}  // namespace

int32_t ChooseToken(std::span<const float> scores, const TextRequest& request, double draw) {
  const auto known = static_cast<size_t>(request.vocabulary);
  if (known > 0 && known < scores.size()) scores = scores.first(known);
  const std::vector<int32_t> tokens = Highest(scores, Candidates(scores.size(), request));
  if (tokens.size() == 1) return tokens[0];
  const double highest = scores[static_cast<size_t>(tokens[0])];
  std::vector<double> shares;
  for (const int32_t token : tokens) {
    const double below = scores[static_cast<size_t>(token)] - highest;
    shares.push_back(std::exp(below / request.temperature));
  }
  const double enough = request.top_p * std::accumulate(shares.begin(), shares.end(), 0.0);
  double total = 0;
  size_t count = 0;
  while (count < shares.size() && (count == 0 || total < enough)) total += shares[count++];
  double left = draw * total;
  for (size_t i = 0; i + 1 < count; ++i) {
    left -= shares[i];
    if (left < 0) return tokens[i];
  }
  return tokens[count - 1];
}

double DrawOf(int64_t seed, int64_t prompt, int64_t place) {
  const uint64_t bits = ForwardSeed(seed, prompt, static_cast<int>(place));
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

}  // namespace strata
