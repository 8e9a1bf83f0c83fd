// Which kernel runs is decided by conv.cc (Winograd, the unfolded weight gradient) and by ATen's
// use_mkldnn() (oneDNN, or ATen's own kernel over columns). What each allocates was measured, with
// AVX-512 and with AVX2; conv_memory_test.cc compares it.
//
// oneDNN computes in its own layouts, so ATen copies every operand into one and the result out of
// it. A layout in blocks rounds the channels up to whole registers. X, Y and W are the bytes of the
// input, the output and the weight, Xb and Yb those of X and Y in blocks:
//
//   forward         max(Xb + Yb + W, Y + Yb) - Y    Y is there only once the operands are freed
//   input gradient  max(Yb + Xb + W, X + Xb) - X    with stride 1
//                   2 X                             with a larger stride: the layout is channels
//                                                   last, and ATen copies the result twice
//   weight gradient max(Xb + Yb + W, 2 W)
//
// A transposed convolution calls the same kernels with input and output exchanged.
#include "engine/layers/conv_memory.h"

#include <algorithm>

#include "engine/layers/kernels/avx512.h"
#include "engine/layers/kernels/winograd_sizes.h"
#include "engine/layers/rules.h"

namespace strata::layers {
namespace {

bool AreAll(const Shape& sizes, int64_t value) {
  return std::ranges::all_of(sizes, [=](int64_t size) { return size == value; });
}

/// The convolution that the kernels run. Of a transposed one that is the opposite convolution, from
/// y to x, whose input gradient is y.
struct Kernel {
  explicit Kernel(const ConvCall& c)
      : call(c),
        from(c.is_transposed ? c.output : c.input),
        to(c.is_transposed ? c.input : c.output) {}

  int64_t images() const { return from[0]; }
  int64_t inputs() const { return from[1]; }
  int64_t outputs() const { return to[1]; }
  /// Positions of the output, of all images.
  int64_t places() const { return Product(to) / outputs(); }
  int64_t weights() const { return outputs() * inputs() / call.groups * Product(call.window); }
  bool is_half() const { return call.element_bytes < 4; }
  bool is_strided() const { return !AreAll(call.stride, 1); }
  bool is_dilated() const { return !AreAll(call.dilation, 1); }
  double Bytes(int64_t elements) const {
    return static_cast<double>(elements) * static_cast<double>(call.element_bytes);
  }
  /// The bytes of the unfolded images: for each output position, the inputs under the window.
  double ColumnBytes() const { return Bytes(places() * inputs() * Product(call.window)); }

  const ConvCall& call;
  const Shape& from;
  const Shape& to;
};

/// ATen's ConvParams::use_mkldnn().
bool IsByOneDnn(const Kernel& k) {
  if (k.is_half()) return HasAvx512();
  const Shape& window = k.call.window;
  const int64_t last = window.back(), before = window.size() > 1 ? window[window.size() - 2] : 1;
  const bool is_point = last == 1 && before == 1;
  constexpr int64_t kManyImages = 16, kManyInputs = 20480;
  return (k.is_strided() || k.is_dilated() || k.images() >= kManyImages || !is_point ||
          k.call.threads > 1) &&
         (k.call.groups > 1 || (last > 3 && before > 3) || k.images() > 1 ||
          Product(k.call.input) > kManyInputs);
}

/// True if conv.cc takes Winograd's algorithm.
bool IsByWinograd(const Kernel& k) {
  return HasAvx512() && !k.call.is_transposed && !k.is_half() && k.call.window == Shape{3, 3} &&
         AreAll(k.call.padding, 1) && !k.is_strided() && !k.is_dilated() && k.call.groups == 1 &&
         winograd::Suits({k.images(), k.inputs(), k.outputs(), k.from[2], k.from[3]});
}

ConvScratch OfWinograd(const Kernel& k) {
  const winograd::Sizes sizes = {k.images(), k.inputs(), k.outputs(), k.from[2], k.from[3]};
  winograd::Sizes turned = sizes;
  std::swap(turned.inputs, turned.outputs);
  const int threads = k.call.threads;
  const auto bytes = [](int64_t floats) { return 4 * static_cast<double>(floats); };
  return {bytes(winograd::ConvolutionScratch(sizes, threads)),
          bytes(winograd::ConvolutionScratch(turned, threads)),
          bytes(winograd::WeightGradientScratch(sizes, threads))};
}

ConvScratch OfOneDnn(const Kernel& k) {
  // With fewer channels than a register has elements, some kernels read the input as it is.
  const int64_t block = HasAvx512() ? 16 : 8;
  const auto in_blocks = [&](const Shape& shape) {
    if (k.is_half()) return k.Bytes(Product(shape));  // channels last
    const int64_t channels = shape[1];
    return k.Bytes(Product(shape) / channels * ((channels + block - 1) / block * block));
  };
  constexpr int64_t kAsTheyAre = 4;
  const double X = k.Bytes(Product(k.from)), Y = k.Bytes(Product(k.to)), W = k.Bytes(k.weights());
  const double Xb = in_blocks(k.from), Yb = in_blocks(k.to);
  const bool is_plain = k.call.groups == 1 && k.inputs() < block;
  const bool is_plain_gradient = k.call.groups == 1 && k.inputs() <= kAsTheyAre;
  const bool is_last = k.is_half() || (k.is_strided() && !k.is_dilated() && k.call.groups == 1);

  ConvScratch scratch;
  scratch.forward = std::max((is_plain ? 0 : Xb) + Yb + W, Y + Yb) - Y;
  if (k.is_half()) scratch.forward = std::max(X + W, 2 * Y);
  scratch.input_grad = is_last ? std::max(Yb + W, 2 * X) : std::max(Yb + Xb + W, X + Xb) - X;
  scratch.weight_grad = std::max((is_plain_gradient ? 0 : Xb) + Yb + W, 2 * W);
  if (!k.call.is_transposed) return scratch;
  std::swap(scratch.forward, scratch.input_grad);
  if (!is_last) scratch.forward += Xb;  // the result is copied once more
  return scratch;
}

}  // namespace

ConvScratch ScratchOf(const ConvCall& call) {
  const Kernel k(call);
  if (IsByWinograd(k)) return OfWinograd(k);
  const size_t dims = call.window.size();
  ConvScratch scratch;
  if (IsByOneDnn(k)) {
    scratch = OfOneDnn(k);
  } else {
    // ATen's own kernel. A window of one element needs no columns in the forward.
    const double columns = Product(call.window) == 1 && !k.is_strided() ? 0 : k.ColumnBytes();
    scratch = {columns, dims > 2 || call.is_transposed ? k.ColumnBytes() : 0, columns};
    scratch.weight_grad += k.Bytes(k.weights());
  }
  const bool is_unfolded = dims == 2 && !k.is_half() && !call.is_transposed && call.groups == 1 &&
                           PaysToUnfold(k.weights(), k.outputs(), k.places());
  if (is_unfolded) scratch.weight_grad = 2 * k.ColumnBytes() + k.Bytes(Product(k.to));
  return scratch;
}

}  // namespace strata::layers
