// Rules: the arithmetic of an optimizer's step, one function for each type of optimizer.
//
// Most rules are elementwise: a few operators of ATen, which run on pieces of a flat buffer, so
// that temporaries stay in the cache and the bits do not depend on threads. The fused kernels of
// SGD and Adam take a whole buffer. Adafactor and Muon see one whole parameter at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "engine/runtime/stage/flat_parameters.h"

namespace strata {

/// A state that an optimizer keeps for every element of a flat buffer.
struct Moment {
  std::string name;  ///< PyTorch's name: "momentum_buffer", "exp_avg"
  /// Of the buffer's size and type, except that "ema" is at least float32.
  at::Tensor values;
};

/// A state that an optimizer keeps for a parameter as a whole.
struct Factor {
  std::string path;   ///< the path of the parameter
  std::string name;   ///< PyTorch's name: "row_var"
  at::Tensor values;  ///< of the shape that PyTorch gives it
};

/// The arguments of a rule: one flat buffer, or a piece of it.
struct Updated {
  at::Tensor values;
  at::Tensor gradients;                              ///< not yet divided by UpdateStep::divisor
  std::vector<at::Tensor> moments;                   ///< in the order of OptionTable::moments
  std::span<const PlacedParameter> parameters = {};  ///< those that lie in the buffer
  std::vector<Factor>* factors = nullptr;
  /// The values in the type that layers compute in, undefined if there is no such copy. A rule that
  /// writes it sets `*wrote_copy`.
  at::Tensor copy = {};
  bool* wrote_copy = nullptr;
};

struct UpdateStep {
  int64_t step = 1;  ///< counted from 1
  double lr = 0;
  double divisor = 1;  ///< gradients are divided by it and hold the quotient afterwards
};

using Rule = std::function<void(const Updated&, const UpdateStep&)>;

/// Returns the rule of a type of optimizer. Throws ConfigError for an unknown type.
Rule MakeRule(const std::string& type, const Value& options);

/// The row and column means of a parameter for Adafactor, or its squares if it has fewer than two
/// dims; zeros.
std::vector<Factor> AdafactorFactors(const PlacedParameter& parameter);
/// Rules that see whole parameters (matrix_rules.cc).
Rule Adafactor(const Value& options);
Rule Muon(const Value& options);

}  // namespace strata
