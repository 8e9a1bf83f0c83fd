// Floats in the same bucket have their highest bits in common (sign, exponent, three bits of the
// mantissa), so the bucket of a number is its bits shifted to the right. The cost is one pass over
// the elements, without a search of limits.
#include "engine/runtime/update/histogram.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

namespace strata {
namespace {

constexpr int kShift = 20;  // keeps the exponent and three of the 23 mantissa bits
constexpr uint32_t PlaceOf(uint32_t bits) { return bits >> kShift; }
constexpr uint32_t kLeast = PlaceOf(std::bit_cast<uint32_t>(0x1p-40f));
constexpr float kMost = std::numeric_limits<float>::max();
/// The number of buckets on each side of 0.
constexpr int kSide = static_cast<int>(PlaceOf(std::bit_cast<uint32_t>(kMost)) - kLeast + 2);

/// The bucket, counted from 0 outwards, of the bits of a non-negative number.
int BucketOfBits(uint32_t bits) {
  const uint32_t place = PlaceOf(bits);
  return place < kLeast ? 0 : static_cast<int>(place - kLeast) + 1;
}

/// The bucket of a number, from -kSide to kSide - 1, ascending.
int BucketOf(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  constexpr uint32_t kSign = 0x80000000;
  if (bits <= kSign) return BucketOfBits(bits & ~kSign);  // -0 too
  // A limit belongs to the bucket above it; below 0 that is the bucket nearer to 0.
  return -1 - BucketOfBits((bits & ~kSign) - 1);
}

/// The upper limit of the bucket.
double LimitOf(int bucket) {
  const auto begin = [](int k) {  // the lower edge of the k-th bucket from 0 outwards
    if (k == 0) return 0.0;
    const double edge = std::bit_cast<float>((kLeast + static_cast<uint32_t>(k) - 1) << kShift);
    return std::min(edge, static_cast<double>(kMost));
  };
  return bucket < 0 ? 0.0 - begin(-1 - bucket) : begin(bucket + 1);
}

}  // namespace

Value HistogramOf(const at::Tensor& tensor, double divisor) {
  const at::Tensor all = tensor.detach().to(at::kCPU, at::kFloat).contiguous();
  std::vector<int64_t> found(2 * kSide);
  float min = kMost, max = -kMost;
  double sum = 0, squares = 0;
  const auto count = static_cast<size_t>(all.numel());
  for (const float element : std::span(all.const_data_ptr<float>(), count)) {
    const auto x = static_cast<float>(std::clamp<double>(element / divisor, -kMost, kMost));
    ++found[static_cast<size_t>(kSide + BucketOf(x))];
    min = std::min(min, x);
    max = std::max(max, x);
    sum += x;
    squares += static_cast<double>(x) * x;
  }
  Value::List limits, counts;
  int next = -kSide;  // the bucket after the last one in the lists
  for (int bucket = -kSide; bucket < kSide; ++bucket) {
    const int64_t here = found[static_cast<size_t>(kSide + bucket)];
    if (here == 0) continue;
    if (bucket > next) {
      limits.push_back(LimitOf(bucket - 1));
      counts.push_back(int64_t{0});
    }
    limits.push_back(LimitOf(bucket));
    counts.push_back(here);
    next = bucket + 1;
  }
  if (count == 0) min = max = 0;
  return Value::MakeMap({{"min", static_cast<double>(min)},
                         {"max", static_cast<double>(max)},
                         {"num", all.numel()},
                         {"sum", sum},
                         {"sum_squares", squares},
                         {"limits", std::move(limits)},
                         {"counts", std::move(counts)}});
}

}  // namespace strata
