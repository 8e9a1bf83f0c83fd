// LayerCost: what the passes of one layer do, keep and allocate for one micro-batch, on one rank of
// the model axis.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace strata {

struct LayerPart;

/// One pass of a layer: forward, gradient of the input, or gradient of the weights.
struct Work {
  double flops = 0;       ///< floating-point operations; a multiply-add is two
  double bytes = 0;       ///< of memory, read and written
  double axis_bytes = 0;  ///< that this rank sends to the others of the model axis
  double seconds = 0;     ///< 0 until they are set

  Work& operator+=(const Work& other) {
    flops += other.flops;
    bytes += other.bytes;
    axis_bytes += other.axis_bytes;
    seconds += other.seconds;
    return *this;
  }
  bool operator==(const Work&) const = default;
};

/// Bytes are what the allocator takes for the tensors (size_class.h).
struct LayerCost {
  Work forward;
  Work input_grad;
  Work weight_grad;

  int64_t parameters = 0;      ///< trainable elements that this rank has
  int64_t weight_bytes = 0;    ///< values, frozen ones too; as they lie in flat buffers
  int64_t copy_bytes = 0;      ///< of these: copies in half precision, which layers compute with
  int64_t gradient_bytes = 0;  ///< of the trainable ones
  int64_t buffer_bytes = 0;    ///< state such as BatchNorm's
  /// Of the optimizer's state, beyond ModelCosts::moments; below 0 where a group keeps fewer.
  int64_t extra_state_bytes = 0;
  int64_t input_bytes = 0;
  int64_t output_bytes = 0;
  // Of these: what a part of a layer (parts.h) carries along for a part behind it.
  int64_t carried_input = 0;
  int64_t carried_output = 0;

  // What is kept from the forward to the backward. The output of one layer is the input of the
  // next, so SumLayers() counts a tensor that both keep once.
  bool keeps_input = false;
  bool keeps_output = false;
  bool passes_input = false;  ///< the output is the input, or a view of it
  int64_t kept_bytes = 0;     ///< of other tensors

  // What stays after the input gradient until the weight gradient (I, W).
  bool defers_input = false;
  int64_t deferred_bytes = 0;  ///< of other tensors, mostly the output's gradient

  /// A weight gradient is a product of rows, as those of Linear and of attention's projections are.
  bool multiplies_rows = false;

  // The highest further memory while a pass runs. Neither what is kept nor the output counts, nor
  // in the backward the gradients of input and output.
  int64_t forward_scratch = 0;
  int64_t backward_scratch = 0;

  bool runs_once = false;  ///< its forward must not run again (HasMaxNorm())
  bool is_guess = false;   ///< nothing is known of the work of a layer written in Lua

  /// What the work consists of, where that is more than one thing; of a part only the work counts.
  std::vector<LayerPart> parts;
};

/// Some of a layer's work.
struct LayerPart {
  std::string kind;  ///< the type of layer that would do it alone ("Linear"); "" = none
  LayerCost cost;
};

}  // namespace strata
