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

/// The peak of a rank's program row, without what lives from step to step.
struct RowPeak {
  int64_t activations = 0;  ///< kept for backwards
  int64_t buffers = 0;      ///< messages in flight, gradients of activations, scratch
};

/// Bytes of the tensors of one rank at the moment of the step when they are most, with what the
/// kernels of convolutions allocate on a CPU. Other memory (code, LibTorch itself, the libraries of
/// a GPU) is not included.
struct RankMemory {
  int rank = 0;         ///< on the pipe axis
  int64_t weights = 0;  ///< values, including frozen ones and buffers such as BatchNorm's
  int64_t gradients = 0;
  int64_t optimizer = 0;    ///< the optimizer state; with ZeRO-1 this rank's share
  int64_t activations = 0;  ///< kept for backwards
  int64_t buffers = 0;      ///< messages in flight, gradients of activations, scratch
  int64_t texts = 0;        ///< keys and values of job.eval.samples, held between two steps

  int64_t total() const {
    return weights + gradients + optimizer + std::max(activations + buffers, texts);
  }
  /// The memory of a rank that holds this from step to step, and whose row has such a peak.
  RankMemory With(const RowPeak& peak) const {
    RankMemory memory = *this;
    memory.activations = peak.activations;
    memory.buffers = peak.buffers;
    return memory;
  }
};

/// The peaks of a program's rows, for any costs of its stages.
class RowPeaks {
 public:
  /// `program`: compute only or lowered. It must outlive this object.
  explicit RowPeaks(const schedule::Program& program);
  RowPeaks(const RowPeaks&) = delete;

  /// `stages`: the costs of all stages; only those on the rank matter.
  RowPeak Of(int rank, const std::vector<StageCost>& stages) const;

 private:
  const schedule::Program& program_;
  const schedule::RowWalk walk_;
  const std::vector<int> slots_;
};

/// What every rank of the pipe axis holds from step to step, and the texts that it holds between
/// two steps. `stages`: the costs of all stages (StageCosts()).
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
