// The scratch memory of the kernels that compute a convolution on a CPU: what they allocate beside
// the layer's input and output and the gradients of those.
#pragma once

#include <cstdint>
#include <vector>

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

/// One call of the library's convolution. Shapes are (batch, channels, positions...).
struct ConvCall {
  std::vector<int64_t> input;  ///< with the padding that the convolution cannot do itself
  std::vector<int64_t> output;
  std::vector<int64_t> window, stride, padding, dilation;
  bool is_transposed = false;
  int64_t groups = 1;
  int64_t element_bytes = 4;
  int threads = 1;
};

/// Bytes, at the peak of each pass.
struct ConvScratch {
  double forward = 0;
  double input_grad = 0;
  double weight_grad = 0;  ///< with the weight gradient itself, which is added to the sum behind it
};

/// The scratch memory of the kernels that compute the call and its gradients.
ConvScratch ScratchOf(const ConvCall& call);

}  // namespace strata::layers
