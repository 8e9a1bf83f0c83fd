// Rules: what an optimizer does in a step, one function for each type of optimizer.
//
// A rule that sees one element after the other is a few lines of ATen's operators, which run on
// pieces of a flat buffer: temporaries stay in the cache, and the bits depend on no thread. The
// fused kernels of SGD and Adam take a whole buffer. Others see a parameter at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "engine/runtime/stage/flat_parameters.h"

namespace strata {

/// What an optimizer remembers of every element of a flat buffer.
struct Moment {
  std::string name;   ///< PyTorch's: "momentum_buffer", "exp_avg"
  at::Tensor values;  ///< as many as the buffer has, of its type; "ema" in float32 at least
};

/// What an optimizer remembers of a parameter as a whole.
struct Factor {
  std::string path;   ///< the parameter's
  std::string name;   ///< PyTorch's: "row_var"
  at::Tensor values;  ///< of PyTorch's shape
};

/// What a rule works on: one flat buffer, or a piece of it.
struct Updated {
  at::Tensor values;
  at::Tensor gradients;                              ///< to be divided by the step's divisor
  std::vector<at::Tensor> moments;                   ///< in the order of OptionTable::moments
  std::span<const PlacedParameter> parameters = {};  ///< that lie in the buffer
  std::vector<Factor>* factors = nullptr;
};

struct UpdateStep {
  int64_t step = 1;  ///< counted from 1
  double lr = 0;
  double divisor = 1;  ///< the gradients hold the quotient afterwards
};

using Rule = std::function<void(const Updated&, const UpdateStep&)>;

/// The rule of a type of optimizer. Throws ConfigError for a type that nobody has.
Rule MakeRule(const std::string& type, const Value& options);

/// Adafactor's row and column means of a parameter, or its squares, zero at first.
std::vector<Factor> AdafactorFactors(const PlacedParameter& parameter);
/// See whole parameters (matrix_rules.cc).
Rule Adafactor(const Value& options);
Rule Muon(const Value& options);

}  // namespace strata
