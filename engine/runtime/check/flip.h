// Flip: a bit that a rank flips in its own numbers, named by $STRATA_FLIP, to show that a checked
// step finds it. Only code of this folder calls it, so unchecked steps have no place for one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "engine/layers/layer.h"

namespace strata {

/// What a flip hits.
enum class FlipAt {
  kOutput,          ///< "output": a forward's output, or the loss
  kInputGradient,   ///< "input_gradient"
  kWeightGradient,  ///< "weight_gradient": the sums after a backward of a micro-batch
  kMessage,         ///< "message": an activation or a gradient on its way to the next rank
  kPacket,          ///< "packet": what is sent to be repeated, on its way
  kParameter,       ///< "parameter": in memory, before a checked step
  kUnchecked,       ///< "unchecked": a parameter in memory, before a step that is not checked
  kState,           ///< "state": of the optimizer, in memory, between two steps
  kUpdate,          ///< "update": a parameter that the optimizer has just written
};

struct Flip {
  int rank = 0;
  FlipAt at = FlipAt::kOutput;
  uint64_t seed = 0;   ///< chooses the tensor and the bit
  bool lasts = false;  ///< happens each time, else once
  bool has_happened = false;

  /// Flips a bit of one of the tensors if this is the place and it is due. Tensors without elements
  /// or with repeated ones (an absent gradient) cannot be hit.
  void Reach(FlipAt where, const Tensors& tensors);
};

/// The number of bits that this process has flipped, for tests.
int64_t FlipsMade();

/// Parses "RANK:PLACE:SEED" or "RANK:PLACE:SEED:lasting". Throws ConfigError for other texts.
Flip ParseFlip(const std::string& text);

/// The flip that $STRATA_FLIP asks of this rank, if any. Throws ConfigError if the text is wrong.
std::optional<Flip> FlipOf(int rank);

}  // namespace strata
