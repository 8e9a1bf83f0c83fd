// Resamples one plane of pixels.
#pragma once

#include <vector>

namespace strata::data {

/// The old pixels that each new pixel along one dim is made from, and their weights.
class Taps {
 public:
  /// `size` new pixels cover `extent` of the `from` old pixels, beginning at `begin` (in old
  /// pixels). Each new pixel is a mean weighted by a triangle over the pixels it covers, at least
  /// two pixels wide, so that shrinking an image does not skip pixels (Pillow's BILINEAR).
  Taps(int from, float begin, float extent, int size);

  struct Tap {
    int first;
    /// The weights of the pixels from `first` on; their sum is 1.
    std::vector<float> weights;
  };
  const std::vector<Tap>& taps() const { return taps_; }
  int from() const { return from_; }
  int size() const { return static_cast<int>(taps_.size()); }

 private:
  int from_;
  std::vector<Tap> taps_;
};

/// Resamples a plane of down.from() x across.from() pixels to down.size() x across.size().
void Resample(const float* plane, const Taps& down, const Taps& across, float* out);

}  // namespace strata::data
