// Samples as plain bytes, and DataScript, the interface for calling a script's functions on them.
// Torch-free; lua/ implements it.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "engine/base/fields/tensor_spec.h"
#include "engine/base/value.h"

namespace strata {

/// Tensors as plain bytes, one after the other.
struct PlainTensors {
  TensorSpecs specs;
  std::string bytes;
};

struct PlainSample {
  PlainTensors input;
  PlainTensors target;  ///< may be empty
};

/// Calls functions of a script. Any thread may call; calls are serialised. Random draws inside a
/// function are seeded with `seed`. Throws ConfigError with the script's file and line.
class DataScript {
 public:
  virtual ~DataScript() = default;
  /// function(i) -> input, target
  virtual PlainSample Get(const FunctionRef& function, int64_t index, uint64_t seed) = 0;
  /// function(indices, an int64 tensor) -> inputs, targets, whose dim 0 counts the samples
  virtual PlainSample GetBatch(const FunctionRef& function, std::span<const int64_t> indices,
                               uint64_t seed) = 0;
  /// function(input, target) -> input, target
  virtual PlainSample Map(const FunctionRef& function, const PlainSample& sample,
                          uint64_t seed) = 0;
  /// function(input, target) -> true to keep the sample
  virtual bool Keeps(const FunctionRef& function, const PlainSample& sample, uint64_t seed) = 0;
};

}  // namespace strata
