// A Taps object holds, for each new pixel along one dim, the old pixels that it covers and their
// weights. Resample() applies the taps of both dims one after the other: first along the rows, for
// those rows that the vertical taps use, then along the columns. The cost is proportional to the
// pixels times the sum of both taps' lengths, not their product.
#include "engine/data/files/resample.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace strata::data {

Taps::Taps(int from, float begin, float extent, int size) : from_(from) {
  const float scale = extent / static_cast<float>(size);
  const float reach = std::max(scale, 1.0f);
  taps_.reserve(static_cast<size_t>(size));
  for (int i = 0; i < size; ++i) {
    const float centre = begin + (static_cast<float>(i) + 0.5f) * scale;
    const int first = std::clamp(static_cast<int>(std::floor(centre - reach)), 0, from - 1);
    const int last = std::clamp(static_cast<int>(std::ceil(centre + reach)), first, from - 1);
    Tap tap = {first, {}};
    float sum = 0;
    for (int pixel = first; pixel <= last; ++pixel) {
      const float distance = std::abs(static_cast<float>(pixel) + 0.5f - centre);
      tap.weights.push_back(std::max(0.0f, 1 - distance / reach));
      sum += tap.weights.back();
    }
    while (tap.weights.size() > 1 && tap.weights.back() == 0) tap.weights.pop_back();
    for (float& weight : tap.weights) weight /= sum;
    taps_.push_back(std::move(tap));
  }
}

void Resample(const float* plane, const Taps& down, const Taps& across, float* out) {
  const auto width = static_cast<size_t>(across.from()), new_width = across.taps().size();
  // Resample along the rows first, and only the rows that are needed.
  const int first = down.taps().front().first;
  const int last = down.taps().back().first + static_cast<int>(down.taps().back().weights.size());
  std::vector<float> rows(static_cast<size_t>(last - first) * new_width);
  for (int y = first; y < last; ++y) {
    const float* from = plane + static_cast<size_t>(y) * width;
    float* to = rows.data() + static_cast<size_t>(y - first) * new_width;
    for (const Taps::Tap& tap : across.taps()) {
      float sum = 0;
      const float* pixel = from + tap.first;
      for (const float weight : tap.weights) sum += weight * *pixel++;
      *to++ = sum;
    }
  }
  for (const Taps::Tap& tap : down.taps()) {
    std::fill_n(out, new_width, 0.0f);
    const float* from = rows.data() + static_cast<size_t>(tap.first - first) * new_width;
    for (const float weight : tap.weights) {
      for (size_t x = 0; x < new_width; ++x) out[x] += weight * from[x];
      from += new_width;
    }
    out += new_width;
  }
}

}  // namespace strata::data
