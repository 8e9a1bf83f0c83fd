// Joining (job.join): which layers' weight gradients of several micro-batches become one product,
// and of how many micro-batches at a time.
//
// A product of few rows is bound by reading and writing the weight's gradient, which a joined one
// does once. So it pays for Linear layers and attention's projections with few rows; convolutions
// multiply at the GEMM's rate with any batch, and an Embedding touches only the rows that occur.
//
// What is faster follows from what products of so many rows were measured to take on a core
// (docs/benchmarks.md): of a matrix that caches hold, 14 rows' worth and the rows; of a larger one
// 36 and the rows up to 40 of them, and 118 and the rows beyond, where MKL multiplies in another
// way. With more than 256 rows nothing is gained.
#pragma once

#include <cstdint>

#include "engine/plan/costs/layer_costs.h"
#include "engine/plan/plan.h"

namespace strata {

/// The most rows of a joined product.
inline constexpr int64_t kMostJoinedRows = 256;

/// Sets LayerPlan::is_joined and StagePlan::joined to what takes the least time, as if there were
/// no memory limit; says in a notice when nothing gains. REQUIRES: layers and stages are planned,
/// and the costs have shapes.
void PlanJoining(const ModelCosts& costs, Plan& plan);

/// Chooses anew for a stage, which joins at most `most` micro-batches at a time; 1: none.
void LimitJoining(const ModelCosts& costs, int stage, int most, Plan& plan);

/// The same plan with nothing joined.
Plan Unjoined(Plan plan);

/// The costs with each layer's weight gradients joined as is best for it alone: what stages take
/// at least, wherever the list is cut.
ModelCosts BestJoined(ModelCosts costs, int64_t micro_batches);

/// What a layer's weight gradients of `micro_batches` take when up to `joined` of them are one
/// product, as a share of what they take alone. REQUIRES: product_rows > 0.
double JoinedShare(const LayerCost& layer, int64_t micro_batches, int joined);

}  // namespace strata
