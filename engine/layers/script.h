// Script: the interface by which the engine calls functions of the job's script. The engine does
// not depend on Lua; the package lua/ implements the interface.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/base/value.h"
#include "engine/layers/layer_spec.h"

namespace strata {

/// What is known about micro-batch 0 of a data function. Shapes include the batch dim.
struct FirstBatch {
  TensorSpecs input;
  TensorSpecs target;  ///< empty = none
  /// The distinct values of the first input (rows of an Embedding) and of the first target
  /// (labels), ascending, if they are integers.
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

  /// Calls a function that takes and returns plain values (partition, lr_schedule, seed_fn,
  /// schedule). Several results are returned as a list, one result as itself, none as null.
  virtual Value Call(const FunctionRef& function, const Value::List& arguments) = 0;

  /// The same for a callback of a training, which may take as long as it likes: the limit of time
  /// is for scripts before any training.
  virtual Value CallInTraining(const FunctionRef& function, const Value::List& arguments) {
    return Call(function, arguments);
  }

  /// The output shapes of a scripted layer for these inputs, which include the batch. Runs the
  /// function on zeros, so it may load LibTorch.
  virtual TensorSpecs InferShapes(const LayerSpec& layer, const TensorSpecs& inputs) = 0;

  /// Runs a scripted layer forward and backward on zeros of these shapes, and counts what it
  /// allocates; once for each layer and shapes. None where no tensors can be had.
  virtual std::optional<LayerMemory> MeasureMemory(const LayerSpec& /*layer*/,
                                                   const TensorSpecs& /*inputs*/) {
    return std::nullopt;
  }

  /// Calls a data function for micro-batch 0, so it may load LibTorch.
  virtual FirstBatch InferData(const FunctionRef& function, int64_t job_seed) = 0;

  /// Runs a scripted loss on zeros, to see that it works. Throws when it fails.
  virtual void TryLoss(const LayerSpec& loss, const TensorSpecs& output,
                       const TensorSpecs& target) = 0;
};

}  // namespace strata
