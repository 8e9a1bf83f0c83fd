// What the engine may ask of the script that a job came from, without knowing Lua.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/base/value.h"
#include "engine/spec/layer_spec.h"

namespace strata {

/// What a data function gives for micro-batch 0, the batch dim included.
struct FirstBatch {
  TensorSpecs input;
  TensorSpecs target;  ///< empty: none
  /// The different values of the first input and of the first target, ascending, where those are
  /// integers: rows of an Embedding, labels.
  std::vector<int64_t> tokens;
  std::vector<int64_t> labels;
};

/// What a scripted layer's passes were seen to allocate, in bytes as the allocator takes them.
struct LayerMemory {
  bool keeps_input = false;   ///< the graph holds it from the forward to the backward
  bool keeps_output = false;  ///< likewise
  bool passes_input = false;  ///< the output is the input, or a view of it
  int64_t kept = 0;           ///< beside both
  // At the highest, beside what is kept, the output, and in the backward both gradients:
  int64_t forward_scratch = 0;
  int64_t backward_scratch = 0;
};

/// The script's functions, by reference. Implemented by lua/. Safe to call from several threads
/// (the implementation takes its own lock). A failing function gives a ConfigError which shows the
/// script's file and line.
class Script {
 public:
  virtual ~Script() = default;

  /// Calls a function of plain values (partition, lr_schedule, seed_fn, schedule); several results
  /// come back as a list, one as itself, none as null.
  virtual Value Call(const FunctionRef& function, const Value::List& arguments) = 0;

  /// The shapes that a scripted layer gives for these inputs (batch included). Runs the function on
  /// zeros, so it may load LibTorch.
  virtual TensorSpecs InferShapes(const LayerSpec& layer, const TensorSpecs& inputs) = 0;

  /// Runs a scripted layer forward and backward on zeros of these shapes, and counts what it
  /// allocates; once for each layer and shapes. None where no tensors can be had.
  virtual std::optional<LayerMemory> MeasureMemory(const LayerSpec& /*layer*/,
                                                   const TensorSpecs& /*inputs*/) {
    return std::nullopt;
  }

  /// Calls a data function for micro-batch 0, so it may load LibTorch.
  virtual FirstBatch InferData(const FunctionRef& function, int64_t job_seed) = 0;

  /// Runs a scripted loss on zeros; throws what it throws.
  virtual void TryLoss(const LayerSpec& loss, const TensorSpecs& output,
                       const TensorSpecs& target) = 0;
};

}  // namespace strata
