// Optimizer: updates the flat buffers of one stage. SGD (momentum, dampening, Nesterov, weight
// decay), Adam and AdamW with PyTorch's options and arithmetic, through ATen's fused kernels: one
// call, one pass over memory, per flat buffer.
#pragma once

#include <memory>
#include <vector>

#include "engine/runtime/stage/flat_parameters.h"
#include "engine/spec/job/job.h"

namespace strata {

/// What an optimizer remembers of every element of a flat buffer.
struct Moment {
  const char* name;   ///< PyTorch's: "momentum_buffer", "exp_avg"
  at::Tensor values;  ///< as many as the buffer has
};

/// The moments of one flat buffer.
struct OptimizerState {
  FlatBuffer buffer;
  std::vector<Moment> moments;
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  /// One step. The gradients are divided by `divisor` within the same pass, and hold the quotient
  /// afterwards. `lr_factor` multiplies each group's lr.
  virtual void Step(double lr_factor, double divisor) = 0;
  /// Everything that it remembers but the number of steps; shared, not copied.
  virtual std::vector<OptimizerState> state() const = 0;
  /// From now on it behaves as if so many steps were done.
  virtual void set_steps_done(int64_t steps) = 0;
};

/// `buffers` are shared, not copied; their state starts at zero. Throws ConfigError for a type that
/// nobody has. The number of elements of the state is that of the buffers for each moment.
std::unique_ptr<Optimizer> MakeOptimizer(const OptimizerSpec& spec,
                                         std::vector<FlatBuffer> buffers);

/// torch.nn.utils.clip_grad_norm_'s factor: max_norm / (norm + 1e-6) if below 1, else 1. A
/// `max_norm` of 0 asks for no clipping.
double ClipFactor(double max_norm, double norm);

}  // namespace strata
