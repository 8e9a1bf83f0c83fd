// What the engine may ask of the script that a job came from, without knowing Lua.
#pragma once

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

  /// Calls a data function for micro-batch 0, so it may load LibTorch.
  virtual FirstBatch InferData(const FunctionRef& function, int64_t job_seed) = 0;

  /// Runs a scripted loss on zeros; throws what it throws.
  virtual void TryLoss(const LayerSpec& loss, const TensorSpecs& output,
                       const TensorSpecs& target) = 0;
};

}  // namespace strata
