// Optimizer: updates the flat buffers of one stage by PyTorch's arithmetic (update_rules.h), and
// keeps their moments, averages (ema) among them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/job/job.h"
#include "engine/runtime/stage/flat_parameters.h"
#include "engine/runtime/update/update_rules.h"

namespace strata {

/// What an optimizer remembers of one flat buffer.
struct OptimizerState {
  FlatBuffer buffer;
  std::vector<Moment> moments;
  std::vector<Factor> factors;
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  /// One step. The gradients are divided by `divisor` within the same pass, and hold the quotient
  /// afterwards. `lr_factor` multiplies each group's lr.
  virtual void Step(double lr_factor, double divisor) = 0;
  /// Everything that it remembers but the number of steps; shared, not copied.
  virtual std::vector<OptimizerState> state() const = 0;
  /// From now on it behaves as if so many steps were done. `began`: how many of these were done
  /// when a parameter began to learn, by PlacedParameter::path; 0 for those that it leaves out. The
  /// rule of a parameter counts the steps since then, as torch.optim does, where a parameter that
  /// gets its first gradient later has a step of its own. REQUIRES: the optimizer was given the
  /// parameters.
  virtual void set_steps_done(int64_t steps, const std::map<std::string, int64_t>& began = {}) = 0;
  /// Exchanges the values with their averages (OptimizerSpec::ema), which evaluations use. After
  /// the first step they are the values, then `ema` of them goes on and the rest is new. Before it
  /// nothing happens, unless averages were begun.
  virtual void SwapAverages() = 0;
  /// The averages are the values, before any step. Whoever has others puts them into state().
  virtual void BeginAverages() = 0;
};

/// `buffers` are shared, not copied; their state starts at zero. `parameters`: all of the stage,
/// for optimizers that see whole ones. Throws ConfigError for a type that nobody has.
std::unique_ptr<Optimizer> MakeOptimizer(const OptimizerSpec& spec, std::vector<FlatBuffer> buffers,
                                         std::span<const PlacedParameter> parameters = {});

/// torch.nn.utils.clip_grad_norm_'s factor: max_norm / (norm + 1e-6) if below 1, else 1. A
/// `max_norm` of 0 asks for no clipping.
double ClipFactor(double max_norm, double norm);

}  // namespace strata
