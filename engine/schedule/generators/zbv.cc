// ZB-V (Qi et al., arXiv:2405.15362), in the order of torch's ScheduleZBVZeroBubble.
#include <algorithm>
#include <vector>

#include "engine/schedule/generators/idle_grid.h"
#include "engine/schedule/generators/v_row.h"

namespace strata::schedule {
namespace {

// Builds the row of one rank for at least 2P-1 micro-batches.
std::vector<Action> RowOf(int ranks, int rank, int micro_batches) {
  VRow row(ranks, rank);
  const auto back = [&](int chunk) {
    row.Backward(chunk, Kind::kInputGrad);
    row.WeightGrad(chunk);
  };
  // Forwards fill the time until the first forward returns on the V, and then until the first
  // backward does.
  for (int i = 0; i < 2 * (ranks - rank) - 1; ++i) row.Forward(0);
  for (int i = 0; i < rank; ++i) row.Forward(1), row.Forward(0);
  for (int i = 0; i < ranks - rank; ++i) row.Forward(1), back(1);
  // Steady state: six actions for each micro-batch.
  while (row.forwards(1) < micro_batches) {
    if (row.forwards(0) < micro_batches) row.Forward(0);
    back(0);
    row.Forward(1);
    back(1);
  }
  // The last backwards leave as soon as they can; weight gradients fill the time between and after
  // them.
  for (int i = 0; i < rank; ++i) {
    row.Backward(0, Kind::kInputGrad);
    row.Backward(1, Kind::kInputGrad);
  }
  for (int i = 0; i < ranks - rank; ++i) back(0);
  for (int i = 0; i < rank; ++i) row.WeightGrad(1);
  while (row.owes()) row.WeightGrad();
  return row.Take();
}

}  // namespace

// P ranks with two stages each, M micro-batches; a column is a time step. P = 3, M = 5:
//
//   rank 0 | 0F0 0F1 0F2 0F3 0F4 5F0 5I0 5W0 5F1 5I1 5W1 5F2 5I2 5W2 0I0 0W0 5F3 5I3 5W3 0I1 0W1
//   rank 1 | .   1F0 1F1 1F2 4F0 1F3 4F1 4I0 4W0 4F2 4I1 4W1 1F4 1I0 1W0 4F3 4I2 4W2 1I1 1W1 4F4
//   rank 2 | .   .   2F0 3F0 2F1 3F1 2F2 3F2 3I0 3W0 2F3 2I0 2W0 3F3 3I1 3W1 2F4 2I1 2W1 3F4 3I2
//
//   rank 0 | 5F4 5I4 5W4 0I2 0W2 0I3 0W3 0I4 0W4 .   .
//   rank 1 | 4I3 4W3 1I2 4I4 1I3 1W2 1I4 1W3 4W4 1W4 .
//   rank 2 | 3W2 2I2 3I3 2I3 3I4 2I4 2W2 3W3 3W4 2W3 2W4
//
// With fewer than 2P-1 micro-batches the pipe is never full. Then the order of F and I is the same,
// without the micro-batches that do not exist, and a W runs where a rank would wait.
Program Zbv(const Sizes& sizes) {
  const int P = sizes.ranks, M = sizes.micro_batches;
  Program program = IdleGrid("zbv", VMap(P, 2), P, M, 0);
  for (int r = 0; r < P; ++r) {
    program.rows[r] = RowOf(P, r, std::max(M, 2 * P - 1));
    std::erase_if(program.rows[r], [&](const Action& action) { return action.micro_batch >= M; });
  }
  return M < 2 * P - 1 ? FillWithWeightGrads(program, 2 * P) : WithIdleSteps(program);
}

}  // namespace strata::schedule
