// Precision: the types in which a job computes and keeps its numbers (the key `precision`).
// Torch-free.
//
//            layers, messages  parameters, gradients, moments  sums over replicas  loss scale
//   float32  float32           float32                         float32             -
//   tf32     float32, products by a GPU's matrix units in TF32 float32             -
//   bf16     bfloat16          float32, or `params`            float32 or `reduce` -
//   fp16     float16           float32                         float32 or `reduce` dynamic/`scale`
//
// Norms, softmax, losses and batch statistics are always computed in float32, as under PyTorch's
// autocast. Messages have the layers' type, so that a cut does not change any result.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/fields/tensor_spec.h"
#include "engine/base/value.h"
#include "engine/job/job_fields.h"

namespace strata {

/// How the loss is scaled, so that gradients in float16 do not become 0. The rule is that of
/// torch.amp.GradScaler, with DeepSpeed's hysteresis.
struct LossScaleSpec {
  double initial = 1;    ///< the first scale; 1 without `dynamic` means no scaling
  bool dynamic = false;  ///< false: the scale is fixed
  double growth = 2;     ///< factor of the scale after `interval` good steps in a row
  double backoff = 0.5;  ///< factor of the scale after an overflow
  int64_t interval = 2000;
  /// The number of overflows, without a growth between them, after which the scale goes down.
  int64_t hysteresis = 1;
  double least = 1;  ///< the scale never falls below this
};

struct Precision {
  std::string name = "float32";
  DType compute = DType::kFloat32;
  DType params = DType::kFloat32;
  DType reduce = DType::kFloat32;
  LossScaleSpec loss_scale = {};

  bool is_half() const { return compute != DType::kFloat32; }
};

/// The table of precisions: "float32", "tf32", "bf16" and "fp16" with their options.
const std::vector<OptionTable>& PrecisionTypes();

/// Converts an entry of PrecisionTypes() with its canonical options. Throws ConfigError for types
/// that do not go together.
Precision ReadPrecision(const std::string& type, const Value& options);

/// The canonical form, a map.
Value PrecisionToValue(const Precision& precision);

}  // namespace strata
