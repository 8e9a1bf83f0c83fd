#include "engine/plan/cut/partition.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <type_traits>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/plan/cut/balance.h"
#include "engine/plan/cut/spread.h"

namespace strata::partition {
namespace {

/// Balance() accepts sums below 2^kSumBits.
constexpr int kSumBits = 127;
/// The limit on the steps of DeepSpeed's method, items^2 * parts; they take some seconds.
constexpr double kMaxSpreadSteps = 1e10;

void CheckSizes(int64_t items, int64_t parts) {
  if (items < 0 || items > kMaxItems) {
    throw ConfigError(
        Str("a partition takes 0 to ", FormatCount(kMaxItems), " items, got ", items));
  }
  if (parts < 1 || parts > kMaxItems) {
    throw ConfigError(Str("a partition has 1 to ", FormatCount(kMaxItems), " parts, got ", parts));
  }
}

std::string Text(int64_t weight) { return std::to_string(weight); }
std::string Text(double weight) { return FormatDouble(weight); }

[[noreturn]] void ThrowWeight(size_t item, const std::string& got) {
  throw ConfigError(
      Str("the weight of item ", item, " must be a finite number from 0 on, got ", got));
}

template <class Weight>
void CheckWeights(std::span<const Weight> weights) {
  for (size_t i = 0; i < weights.size(); ++i) {
    if (weights[i] >= 0 && weights[i] <= std::numeric_limits<Weight>::max()) continue;
    ThrowWeight(i, Text(weights[i]));
  }
}

// ---- Weights as integers

std::vector<UInt128> ToIntegers(std::span<const int64_t> weights) {
  return {weights.begin(), weights.end()};
}

/// The exponent of the lowest bit that is set in x > 0: 12 = 3 * 2^2 gives 2.
int LastBit(double x) {
  int exponent;
  const double mantissa = std::frexp(x, &exponent);
  constexpr int kDigits = std::numeric_limits<double>::digits;
  const auto digits = static_cast<uint64_t>(std::ldexp(mantissa, kDigits));
  return exponent - kDigits + std::countr_zero(digits);
}

/// Converts the weights to multiples of a power of two: the largest one of which all weights are
/// multiples, if their sum then fits into kSumBits; else the least one for which it fits, and the
/// weights are rounded down.
std::vector<UInt128> ToIntegers(std::span<const double> weights) {
  constexpr int kNoBit = std::numeric_limits<int>::max();
  int last_bit = kNoBit;
  for (double weight : weights) {
    if (weight > 0) last_bit = std::min(last_bit, LastBit(weight));
  }
  if (last_bit == kNoBit) return std::vector<UInt128>(weights.size());
  const double largest = *std::max_element(weights.begin(), weights.end());
  const int sum_bits = std::ilogb(largest) + 1 + static_cast<int>(std::bit_width(weights.size()));
  const int unit = std::max(last_bit, sum_bits - kSumBits);
  std::vector<UInt128> integers;
  for (double weight : weights) {
    integers.push_back(static_cast<UInt128>(std::ldexp(weight, -unit)));
  }
  return integers;
}

// ---- DeepSpeed's method

/// The prefix sums as numpy.cumsum gives them: integers are summed as integers, then converted to
/// doubles.
template <class Weight>
std::vector<double> PrefixSums(std::span<const Weight> weights) {
  std::vector<double> prefix = {0};
  std::conditional_t<std::is_same_v<Weight, int64_t>, UInt128, double> sum = 0;
  for (Weight weight : weights) {
    sum += static_cast<decltype(sum)>(weight);
    prefix.push_back(static_cast<double>(sum));
  }
  return prefix;
}

void CheckSpreadSteps(double items, double parts) {
  if (items * items * parts <= kMaxSpreadSteps) return;
  throw ConfigError(Str("DeepSpeed's method takes items^2 * parts steps, too many for ", items,
                        " items and ", parts, " parts; leave compat out"));
}

template <class Weight>
Bounds BalancedOf(std::span<const Weight> weights, int64_t parts, Compat compat) {
  const auto items = static_cast<int64_t>(weights.size());
  CheckSizes(items, parts);
  CheckWeights(weights);
  if (items <= parts) return Uniform(items, parts);
  if (compat == Compat::kNone) return Balance(ToIntegers(weights), static_cast<int>(parts));
  CheckSpreadSteps(static_cast<double>(items), static_cast<double>(parts));
  return LeastSpread(PrefixSums(weights), static_cast<int>(parts));
}

}  // namespace

Bounds Uniform(int64_t items, int64_t parts) {
  CheckSizes(items, parts);
  const int64_t length = items / parts, longer = items % parts;
  Bounds bounds;
  for (int64_t p = 0; p <= parts; ++p) {
    bounds.push_back(static_cast<int>(p * length + std::min(p, longer)));
  }
  return bounds;
}

Bounds Balanced(std::span<const int64_t> weights, int64_t parts, Compat compat) {
  return BalancedOf(weights, parts, compat);
}

Bounds Balanced(std::span<const double> weights, int64_t parts, Compat compat) {
  return BalancedOf(weights, parts, compat);
}

Bounds Balanced(const Value& weights, int64_t parts, Compat compat) {
  const Value::List& list = weights.as_list();
  for (size_t i = 0; i < list.size(); ++i) {
    if (!list[i].is_number()) ThrowWeight(i, list[i].Describe());
  }
  const auto is_whole = [](const Value& weight) { return weight.is_int(); };
  if (std::all_of(list.begin(), list.end(), is_whole)) {
    return Balanced(std::span<const int64_t>(weights.as_ints()), parts, compat);
  }
  std::vector<double> doubles;
  for (const Value& weight : list) doubles.push_back(weight.as_double());
  return Balanced(std::span<const double>(doubles), parts, compat);
}

}  // namespace strata::partition
