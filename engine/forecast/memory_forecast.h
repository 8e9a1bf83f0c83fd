// Memory: what every rank of a planned job needs at its highest, before it runs.
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

/// Bytes of tensors on one rank, at the moment of the step in which they are most. What lies
/// outside of tensors (code, LibTorch itself, scratch memory inside kernels) is not in it.
struct RankMemory {
  int rank = 0;         ///< on the pipe axis
  int64_t weights = 0;  ///< values, frozen ones and state such as BatchNorm's included
  int64_t gradients = 0;
  int64_t optimizer = 0;    ///< its moments; with ZeRO-1 this rank's share
  int64_t activations = 0;  ///< kept for backwards
  int64_t buffers = 0;      ///< messages on their way, gradients of activations, scratch
  int64_t texts = 0;        ///< keys and values of job.eval.samples, between two steps

  int64_t total() const {
    return weights + gradients + optimizer + std::max(activations + buffers, texts);
  }
};

/// What a rank's row holds at its highest, beside what lives from step to step.
struct RowPeak {
  int64_t activations = 0;  ///< kept for backwards
  int64_t buffers = 0;      ///< messages on their way, gradients of activations, scratch
};

/// Of every rank of a program whose stages cost this.
std::vector<RowPeak> PeaksOfRows(const schedule::Program& program,
                                 const std::vector<StageCost>& stages);

/// Predicts for one rank after the other, whatever its stages may cost.
class MemoryForecast {
 public:
  /// `program`: of the plan's stages, compute only or lowered. All must outlive it.
  MemoryForecast(const Job& job, const Plan& plan, const ModelCosts& costs,
                 schedule::Program program);
  MemoryForecast(const MemoryForecast&) = delete;

  /// With these costs of all stages (StageCosts()), of which only those on the rank count.
  RankMemory Of(int rank, const std::vector<StageCost>& stages) const;
  int ranks() const { return program_.ranks(); }

 private:
  const Plan& plan_;
  const schedule::Program program_;
  const schedule::RowWalk walk_;
  const std::vector<int> slots_;
  const std::vector<int64_t> shared_;  ///< by ties, of each stage
  const double owners_;                ///< of the optimizer's state
  const int moments_;
  const std::vector<int64_t> texts_;  ///< of each rank
};

/// Of every rank of the pipe axis; replicas and the ranks of the model axis need the same.
/// `program`: of the plan's stages, compute only or lowered.
std::vector<RankMemory> ForecastMemory(const Job& job, const Plan& plan, const ModelCosts& costs,
                                       const schedule::Program& program);

/// The most that any of the ranks needs.
int64_t LargestTotal(const std::vector<RankMemory>& ranks);

}  // namespace strata
