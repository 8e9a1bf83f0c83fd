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
  Kernel(const LayerSpec& spec, const Traced& x, const Traced& y)
      : from(x), to(y), window(spec.Ints("kernel_size")), groups(spec.Int("groups")) {
    for (const ParameterSpec& parameter : ParametersOf(spec)) {
      if (parameter.name == "weight") weights = parameter.elements();
    }
    is_strided = !AreAll(spec.Ints("stride"), 1);
    is_dilated = !AreAll(spec.Ints("dilation"), 1);
  }

  int64_t images() const { return from.spec.shape[0]; }
  int64_t inputs() const { return from.spec.shape[1]; }
  int64_t outputs() const { return to.spec.shape[1]; }
  /// Positions of the output, of all images.
  int64_t places() const { return to.spec.elements() / outputs(); }
  bool is_half() const { return DTypeSize(from.type()) < 4; }
  double weight_bytes() const { return static_cast<double>(weights * DTypeSize(from.type())); }
  /// The bytes of the unfolded images: for each output position, the inputs under the window.
  double ColumnBytes() const {
    return static_cast<double>(places() * inputs() * Product(window) * DTypeSize(from.type()));
  }

  const Traced& from;
  const Traced& to;
  const Shape window;
  const int64_t groups;
  int64_t weights = 0;
  bool is_strided, is_dilated;
};

/// ATen's ConvParams::use_mkldnn().
bool IsByOneDnn(const Kernel& k, const Traced& x, const LayerHost& host) {
  if (k.is_half()) return HasAvx512();
  const Shape& window = k.window;
  const int64_t last = window.back(), before = window.size() > 1 ? window[window.size() - 2] : 1;
  const bool is_point = last == 1 && before == 1;
  constexpr int64_t kManyImages = 16, kManyInputs = 20480;
  return (k.is_strided || k.is_dilated || k.images() >= kManyImages || !is_point ||
          host.threads > 1) &&
         (k.groups > 1 || (last > 3 && before > 3) || k.images() > 1 ||
          x.spec.elements() > kManyInputs);
}

/// True if conv.cc takes Winograd's algorithm.
bool IsByWinograd(const LayerSpec& spec, const Kernel& k, bool is_transposed) {
  const Value& padding = spec.args["padding"];
  const bool pads_one =
      padding.is_string() ? padding == Value("same") : AreAll(spec.Ints("padding"), 1);
  return HasAvx512() && !is_transposed && !k.is_half() && k.window == Shape{3, 3} && pads_one &&
         spec.args["padding_mode"] == Value("zeros") && !k.is_strided && !k.is_dilated &&
         k.groups == 1 &&
         winograd::Suits(
             {k.images(), k.inputs(), k.outputs(), k.from.spec.shape[2], k.from.spec.shape[3]});
}

ConvScratch OfWinograd(const Kernel& k, int threads) {
  const winograd::Sizes sizes = {k.images(), k.inputs(), k.outputs(), k.from.spec.shape[2],
                                 k.from.spec.shape[3]};
  winograd::Sizes turned = sizes;
  std::swap(turned.inputs, turned.outputs);
  const auto bytes = [](int64_t floats) { return 4 * static_cast<double>(floats); };
  return {bytes(winograd::ConvolutionScratch(sizes, threads)),
          bytes(winograd::ConvolutionScratch(turned, threads)),
          bytes(winograd::WeightGradientScratch(sizes, threads))};
}

ConvScratch OfOneDnn(const Kernel& k, bool is_transposed) {
  // With fewer channels than a register has elements, some kernels read the input as it is.
  const int64_t block = HasAvx512() ? 16 : 8;
  const auto in_blocks = [&](const Traced& t) {
    if (k.is_half()) return t.bytes();  // channels last
    const int64_t channels = t.spec.shape[1];
    const int64_t rounded = (channels + block - 1) / block * block;
    return t.bytes() * static_cast<double>(rounded) / static_cast<double>(channels);
  };
  constexpr int64_t kAsTheyAre = 4;
  const double X = k.from.bytes(), Y = k.to.bytes(), W = k.weight_bytes();
  const double Xb = in_blocks(k.from), Yb = in_blocks(k.to);
  const bool is_plain = k.groups == 1 && k.inputs() < block;
  const bool is_plain_gradient = k.groups == 1 && k.inputs() <= kAsTheyAre;
  const bool is_last = k.is_half() || (k.is_strided && !k.is_dilated && k.groups == 1);

  ConvScratch scratch;
  scratch.forward = std::max((is_plain ? 0 : Xb) + Yb + W, Y + Yb) - Y;
  if (k.is_half()) scratch.forward = std::max(X + W, 2 * Y);
  scratch.input_grad = is_last ? std::max(Yb + W, 2 * X) : std::max(Yb + Xb + W, X + Xb) - X;
  scratch.weight_grad = std::max((is_plain_gradient ? 0 : Xb) + Yb + W, 2 * W);
  if (!is_transposed) return scratch;
  std::swap(scratch.forward, scratch.input_grad);
  if (!is_last) scratch.forward += Xb;  // the result is copied once more
  return scratch;
}

}  // namespace

ConvScratch ScratchOf(const LayerSpec& spec, const Traced& x, const Traced& y,
                      const LayerHost& host) {
  const bool is_transposed = spec.args.Has("output_padding");
  const Kernel k = is_transposed ? Kernel(spec, y, x) : Kernel(spec, x, y);
  if (IsByWinograd(spec, k, is_transposed)) return OfWinograd(k, host.threads);
  ConvScratch scratch;
  if (IsByOneDnn(k, x, host)) {
    scratch = OfOneDnn(k, is_transposed);
  } else {
    // ATen's own kernel. A window of one element needs no columns in the forward.
    const double columns = Product(k.window) == 1 && !k.is_strided ? 0 : k.ColumnBytes();
    scratch = {columns, k.window.size() > 2 || is_transposed ? k.ColumnBytes() : 0, columns};
    scratch.weight_grad += k.weight_bytes();
  }
  const bool is_unfolded = k.window.size() == 2 && !k.is_half() && !is_transposed &&
                           k.groups == 1 && PaysToUnfold(k.weights, k.outputs(), k.places());
  if (is_unfolded) scratch.weight_grad = 2 * k.ColumnBytes() + k.to.bytes();
  return scratch;
}

}  // namespace strata::layers
