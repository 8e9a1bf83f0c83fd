// Optimizer: updates the flat buffers of one stage with PyTorch's arithmetic (update_rules.h), and
// keeps their moments and averages (ema).
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

/// The state that an optimizer keeps for one flat buffer.
struct OptimizerState {
  FlatBuffer buffer;
  std::vector<Moment> moments;
  std::vector<Factor> factors;
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  /// Makes one step. The gradients are divided by `divisor` in the same pass and hold the quotient
  /// afterwards. `lr_factor` multiplies the lr of each group.
  virtual void Step(double lr_factor, double divisor) = 0;
  /// The whole state except the number of steps. The tensors are shared, not copied.
  virtual std::vector<OptimizerState> state() const = 0;
  /// Sets the number of steps that were done. `began`: for parameters that began to learn later, by
  /// PlacedParameter::path, the number of steps that were done then; 0 for all others. A
  /// parameter's rule counts its steps from there, as in torch.optim, where every parameter has a
  /// step count of its own. REQUIRES: the optimizer was given the parameters.
  virtual void set_steps_done(int64_t steps, const std::map<std::string, int64_t>& began = {}) = 0;
  /// The arguments with which set_steps_done() makes another optimizer count as this one.
  struct StepsDone {
    int64_t steps = 0;
    std::map<std::string, int64_t> began = {};
  };
  virtual StepsDone steps_done() const = 0;
  /// Exchanges the values with their averages (OptimizerSpec::ema); evaluations use the averages.
  /// After the first step the average equals the values; each later step makes it ema * average +
  /// (1 - ema) * values. Before the first step nothing is exchanged, unless BeginAverages() was
  /// called.
  virtual void SwapAverages() = 0;
  /// Before any step: sets the averages to the values. The caller may then overwrite them in
  /// state().
  virtual void BeginAverages() = 0;
};

/// `buffers` are shared, not copied; their state starts at zero. `parameters`: all parameters of
/// the stage, for rules that see whole parameters. Throws ConfigError for an unknown type.
std::unique_ptr<Optimizer> MakeOptimizer(const OptimizerSpec& spec, std::vector<FlatBuffer> buffers,
                                         std::span<const PlacedParameter> parameters = {});

/// The factor of torch.nn.utils.clip_grad_norm_: max_norm / (norm + 1e-6) if that is below 1, else
/// 1. A `max_norm` of 0 means no clipping.
double ClipFactor(double max_norm, double norm);

}  // namespace strata
