// Memory forecasts: predict the peak memory of every rank of a planned job before it runs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "engine/job/job.h"
#include "engine/plan/plan.h"
#include "engine/plan/plan_costs.h"
#include "engine/schedule/program.h"
#include "engine/schedule/row_walk.h"

namespace strata {

/// The gradients of a stage that exist for a part of a step only (zero = 2, as
/// engine/runtime/update/gradient_reducer.h says), in bytes.
struct LateGradients {
  int stage = 0;
  int64_t whole = 0;  ///< from the stage's first backward to its last one
  int64_t share = 0;  ///< this rank's share, from then on
  int64_t first = 0;  ///< when a stage's first pass begins
  /// If that pass is also its last one: the most, less the activations that are freed before.
  int64_t only = 0;
  int64_t in_forward =
      0;  ///< the part of `whole` that begins with the first forward (chunked head)
};

/// The peak of a rank's program row, without what lives from step to step.
struct RowPeak {
  int64_t activations = 0;  ///< kept for backwards
  int64_t buffers = 0;      ///< messages in flight, gradients of activations, scratch
  int64_t gradients = 0;    ///< LateGradients
};

/// Bytes of the tensors of one rank at the moment of the step when they are most, with what the
/// kernels of convolutions allocate on a CPU. Other memory (code, LibTorch itself, the libraries of
/// a GPU) is not included.
struct RankMemory {
  int rank = 0;         ///< on the pipe axis
  int64_t weights = 0;  ///< values, including frozen ones and buffers such as BatchNorm's
  int64_t gradients = 0;
  int64_t optimizer = 0;    ///< the optimizer state; with ZeRO this rank's share
  int64_t activations = 0;  ///< kept for backwards
  int64_t buffers = 0;      ///< messages in flight, gradients of activations, scratch
  int64_t texts = 0;        ///< keys and values of job.eval.samples, held between two steps
  int64_t check = 0;        ///< CheckBytes(), held between a checked step's row and its end
  std::vector<LateGradients> late = {};  ///< of the rank's stages; empty unless zero = 2

  int64_t total() const {
    return weights + gradients + optimizer + std::max({activations + buffers, texts, check});
  }
  /// REQUIRES: this is what a rank holds from step to step. Adds the peak of its row.
  RankMemory With(const RowPeak& peak) const {
    RankMemory memory = *this;
    memory.activations = peak.activations;
    memory.buffers = peak.buffers;
    memory.gradients += peak.gradients;
    return memory;
  }
};

/// The peaks of a program's rows, for any costs of its stages.
class RowPeaks {
 public:
  /// `program`: compute only or lowered. It must outlive this object.
  explicit RowPeaks(const schedule::Program& program);
  RowPeaks(const RowPeaks&) = delete;

  /// The memory of a rank that holds `lasting` from step to step. `stages`: the costs of all
  /// stages; only those on the rank matter.
  RankMemory Of(const RankMemory& lasting, const std::vector<StageCost>& stages) const;

 private:
  const schedule::Program& program_;
  const schedule::RowWalk walk_;
  const std::vector<int> slots_;
};

/// The most that a rank needs for a checked step (runtime/check/), as long as it holds no
/// activations: each rank may be asked to repeat the work of each stage.
int64_t CheckBytes(const std::vector<StageCost>& stages, double state_bytes);

/// What every rank of the pipe axis holds from step to step, and what it holds between rows: texts
/// and checks. `stages`: the costs of all stages (StageCosts()).
std::vector<RankMemory> LastingMemory(const Job& job, const Plan& plan, const ModelCosts& costs,
                                      const std::vector<StageCost>& stages);

/// The memory of every rank, given what it holds from step to step and the costs of all stages.
std::vector<RankMemory> MemoryOfRows(std::vector<RankMemory> lasting,
                                     const std::vector<StageCost>& stages,
                                     const schedule::Program& program);

/// The memory of every rank of the pipe axis; replicas and the ranks of the model axis need the
/// same. `program`: of the plan's stages, compute only or lowered.
std::vector<RankMemory> ForecastMemory(const Job& job, const Plan& plan, const ModelCosts& costs,
                                       const schedule::Program& program);

/// The memory of the fullest rank, in bytes.
int64_t LargestTotal(const std::vector<RankMemory>& ranks);

}  // namespace strata
