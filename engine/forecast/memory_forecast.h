// MemoryForecast: predicts the peak memory of every rank of a planned job before it runs.
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
};

/// The peak of a rank's program row, without what lives from step to step.
struct RowPeak {
  int64_t activations = 0;  ///< kept for backwards
  int64_t buffers = 0;      ///< messages in flight, gradients of activations, scratch
};

/// The peaks of every rank of a program, given the costs of its stages.
std::vector<RowPeak> PeaksOfRows(const schedule::Program& program,
                                 const std::vector<StageCost>& stages);

/// Predicts the memory of single ranks, for any costs of the stages.
class MemoryForecast {
 public:
  /// `program`: of the plan's stages, compute only or lowered. All arguments must outlive this
  /// object.
  MemoryForecast(const Job& job, const Plan& plan, const ModelCosts& costs,
                 schedule::Program program);
  MemoryForecast(const MemoryForecast&) = delete;

  /// The memory of one rank. `stages`: the costs of all stages (StageCosts()); only those on the
  /// rank matter.
  RankMemory Of(int rank, const std::vector<StageCost>& stages) const;
  int ranks() const { return program_.ranks(); }

 private:
  const Plan& plan_;
  const schedule::Program program_;
  const schedule::RowWalk walk_;
  const std::vector<int> slots_;
  const std::vector<int64_t> shared_;  ///< per stage: bytes that tied layers share
  const double owners_;                ///< ranks that share the optimizer's state
  const int moments_;
  const std::vector<int64_t> texts_;  ///< per rank
};

/// The memory of every rank of the pipe axis; replicas and the ranks of the model axis need the
/// same. `program`: of the plan's stages, compute only or lowered.
std::vector<RankMemory> ForecastMemory(const Job& job, const Plan& plan, const ModelCosts& costs,
                                       const schedule::Program& program);

/// The memory of the fullest rank, in bytes.
int64_t LargestTotal(const std::vector<RankMemory>& ranks);

}  // namespace strata
