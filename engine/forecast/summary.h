// Summary: every layer of a planned job with its output, parameters, work and memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/value.h"
#include "engine/plan/plan.h"
#include "engine/plan/plan_costs.h"

namespace strata {

/// One layer, on one rank of the model axis, for one full micro-batch.
struct LayerSummary : LayerPlan {
  double flops = 0;           ///< of the forward; a multiply-add is two
  double training_flops = 0;  ///< of forward and backward
  /// Bytes that the stage keeps for the backward in addition because of this layer.
  int64_t activation_bytes = 0;
  int64_t weight_bytes = 0;  ///< the parameters' values
  bool is_guess = false;     ///< written in Lua: estimated as elementwise or as a product
};

std::vector<LayerSummary> Summarize(const Plan& plan, const ModelCosts& costs);

/// A table with a line per layer and the totals.
std::string SummaryText(const Plan& plan, const ModelCosts& costs);
/// {layers = [{index, path, type, output, parameters, frozen, flops, training_flops,
/// activation_bytes, weight_bytes, stage}], and the totals under the same names}.
Value SummaryValue(const Plan& plan, const ModelCosts& costs);

/// "1.41 GFLOP": three significant digits.
std::string FormatFlops(double flops);
}  // namespace strata
