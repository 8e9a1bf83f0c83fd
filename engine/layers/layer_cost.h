// LayerCost: what the passes of one layer do, keep and allocate for one micro-batch, on one rank of
// the model axis.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace strata {

struct LayerPart;

/// Where layers run. The scratch memory of their kernels depends on it.
struct LayerHost {
  bool is_cpu = false;  ///< false: on a GPU, or not known; then no kernel's own memory is counted
  int threads = 1;      ///< of a rank
};

/// One pass of a layer: forward, gradient of the input, or gradient of the weights.
struct Work {
  double flops = 0;       ///< floating-point operations; a multiply-add is two
  double bytes = 0;       ///< bytes of memory that are read and written
  double axis_bytes = 0;  ///< bytes that this rank sends to the other ranks of the model axis
  double seconds = 0;     ///< estimated or measured time; 0 until it is set

  Work& operator+=(const Work& other) {
    flops += other.flops;
    bytes += other.bytes;
    axis_bytes += other.axis_bytes;
    seconds += other.seconds;
    return *this;
  }
  bool operator==(const Work&) const = default;
};

/// The costs of one layer. Sizes in bytes are what the allocator takes for the tensors
/// (size_class.h).
struct LayerCost {
  Work forward;
  Work input_grad;
  Work weight_grad;

  int64_t parameters = 0;      ///< trainable elements that this rank has
  int64_t weight_bytes = 0;    ///< values of all parameters, with the padding of flat buffers
  int64_t copy_bytes = 0;      ///< of weight_bytes: copies in half precision, for the passes
  int64_t gradient_bytes = 0;  ///< gradients of the trainable parameters
  int64_t packed = 0;          ///< elements of frozen weights in few bits (packing.h)
  int64_t packed_bytes = 0;    ///< of weight_bytes: theirs
  int64_t buffer_bytes = 0;    ///< buffers such as BatchNorm's running statistics
  /// Bytes of optimizer state beyond ModelCosts::moments tensors per element; negative if the
  /// parameter's group keeps fewer.
  int64_t extra_state_bytes = 0;
  int64_t input_bytes = 0;
  int64_t output_bytes = 0;
  // The parts of input_bytes and output_bytes that a part of a layer (parts.h) only passes on to a
  // later part.
  int64_t carried_input = 0;
  int64_t carried_output = 0;

  // The tensors that are kept from the forward to the backward. The output of one layer is the
  // input of the next, so SumLayers() counts a tensor that both keep once.
  bool keeps_input = false;
  bool keeps_output = false;
  bool passes_input = false;  ///< the output is the input, or a view of it
  int64_t kept_bytes = 0;     ///< size of the other kept tensors

  // The tensors that are kept after the input gradient (action I) until the weight gradient (action
  // W).
  bool defers_input = false;
  int64_t deferred_bytes = 0;  ///< size of the other ones, mostly the output's gradient

  /// True if some weight gradient is a RowProduct, as in Linear and attention's projections.
  bool multiplies_rows = false;

  // The peak of additional memory while a pass runs. It does not include kept tensors and the
  // output, nor, in the backward, the gradients of input and output.
  int64_t forward_scratch = 0;
  int64_t backward_scratch = 0;
  /// The peak of the input gradient alone, if it is above backward_scratch. A layer whose input
  /// needs no gradient does not have it.
  int64_t input_grad_scratch = 0;

  bool runs_once = false;  ///< the forward must not be recomputed (HasMaxNorm())
  bool is_guess = false;   ///< the work is estimated: a script computes the layer

  /// The parts of the work that are not zero. Only the three Work members of each part's cost are
  /// set (and multiplies_rows).
  std::vector<LayerPart> parts;
};

/// A part of a layer's work, by the type of layer that would do it.
struct LayerPart {
  std::string kind;  ///< the type of layer that would do it alone ("Linear"); "" = none
  LayerCost cost;
};

}  // namespace strata
