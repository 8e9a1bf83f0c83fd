// Resampling of one plane of pixels.
#pragma once

#include <vector>

namespace strata::data {

/// Which pixels along one dim each new pixel is made of, and their weights.
class Taps {
 public:
  /// `size` new pixels cover the `extent` of `from` pixels that begins at `begin`. Each is a
  /// triangle over those it covers, at least two pixels wide, so that nothing is left out where
  /// the image gets smaller (Pillow's BILINEAR).
  Taps(int from, float begin, float extent, int size);

  struct Tap {
    int first;
    std::vector<float> weights;  ///< of the pixels from `first` on; their sum is 1
  };
  const std::vector<Tap>& taps() const { return taps_; }
  int from() const { return from_; }
  int size() const { return static_cast<int>(taps_.size()); }

 private:
  int from_;
  std::vector<Tap> taps_;
};

/// A plane of down.from() x across.from() pixels becomes one of down.size() x across.size().
void Resample(const float* plane, const Taps& down, const Taps& across, float* out);

}  // namespace strata::data
