// What the engine may ask of the script that a job came from, without knowing Lua.
#pragma once

#include <vector>

#include "engine/base/value.h"
#include "engine/spec/layer_spec.h"

namespace strata {

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

  /// The input of micro-batch 0 that a data function gives, batch included. Calls the function, so
  /// it may load LibTorch.
  virtual TensorSpecs InferData(const FunctionRef& function, int64_t job_seed) = 0;
};

}  // namespace strata
