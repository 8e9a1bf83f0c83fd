// Script: the interface by which the engine calls functions of the job's script. The engine does
// not depend on Lua; the package lua/ implements the interface.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/value.h"
#include "engine/layers/layer_spec.h"

namespace strata {

/// What micro-batch 0 of a data function tells about its data. Shapes include the batch dim.
struct FirstBatch {
  TensorSpecs input;
  TensorSpecs target;  ///< empty = none
  /// The distinct values of the first input (rows of an Embedding) and of the first target
  /// (labels), ascending, if they are integers.
  std::vector<int64_t> tokens;
  std::vector<int64_t> labels;
};

/// The memory that the passes of a scripted layer allocated in a trial, in bytes as the allocator
/// takes them.
struct LayerMemory {
  bool keeps_input = false;   ///< the graph holds the input from the forward to the backward
  bool keeps_output = false;  ///< the graph holds the output likewise
  bool passes_input = false;  ///< the output is the input, or a view of it
  int64_t kept = 0;           ///< bytes that the graph holds in addition to input and output
  // The peaks of additional memory, without what is kept, the output and, in the backward, the
  // gradients of input and output:
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

  /// The same as Call() for a callback during training, without a time limit. The limit applies to
  /// scripts before training only.
  virtual Value CallInTraining(const FunctionRef& function, const Value::List& arguments) {
    return Call(function, arguments);
  }

  /// A plan begins. What trials of functions gave for an earlier one is forgotten: at the prompt, a
  /// function may use values that have changed since.
  virtual void BeginPlan() {}

  /// What the user should know of the trials since BeginPlan(); each is told once.
  virtual std::vector<std::string> TakeNotes() { return {}; }

  /// The output shapes of a scripted layer for these inputs, which include the batch. Runs the
  /// function on tensors without values, so it may load LibTorch. Layers that are alike are run
  /// once for a plan.
  virtual TensorSpecs InferShapes(const LayerSpec& layer, const TensorSpecs& inputs) = 0;

  /// Runs a scripted layer forward and backward on tensors of these shapes without values, and
  /// counts what it allocates; layers that are alike are run once for a plan. Returns none if the
  /// script cannot make tensors.
  virtual std::optional<LayerMemory> MeasureMemory(const LayerSpec& /*layer*/,
                                                   const TensorSpecs& /*inputs*/) {
    return std::nullopt;
  }

  /// Calls a data function for micro-batch 0, so it may load LibTorch.
  virtual FirstBatch InferData(const FunctionRef& function, int64_t job_seed) = 0;

  /// Runs a scripted loss on tensors without values to check that it works. Throws if it fails.
  virtual void TryLoss(const LayerSpec& loss, const TensorSpecs& output,
                       const TensorSpecs& target) = 0;
};

}  // namespace strata
