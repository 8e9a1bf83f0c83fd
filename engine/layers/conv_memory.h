// The scratch memory of the kernels that compute a convolution on a CPU: what they allocate beside
// the layer's input and output and the gradients of those.
#pragma once

#include <cstdint>

#include "engine/layers/layer_spec.h"
#include "engine/layers/layer_tape.h"

namespace strata::layers {

/// True if the weight gradient is faster as one matrix product over unfolded images (im2col): for a
/// large weight and few output positions. Then oneDNN's convolution spends its time on the weight:
/// for 8 images of 4x4, 512 to 512 channels, it takes 5.0 ms and the unfolded product 3.1 ms (AMD
/// Zen 5, one core). `weights`: elements of the weight, `outputs`: output channels, `places`:
/// output positions of all images.
inline bool PaysToUnfold(int64_t weights, int64_t outputs, int64_t places) {
  constexpr int64_t kLarge = 1 << 20;
  return weights >= kLarge && 2 * places <= outputs;
}

/// Bytes, at the peak of each pass.
struct ConvScratch {
  double forward = 0;
  double input_grad = 0;
  double weight_grad = 0;
};

/// The scratch memory of the (transposed) convolution `spec` with input x and output y. x includes
/// the padding that the convolution cannot do itself.
ConvScratch ScratchOf(const LayerSpec& spec, const Traced& x, const Traced& y,
                      const LayerHost& host);

}  // namespace strata::layers
