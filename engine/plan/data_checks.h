// What planning finds out about a job by its data: shapes, where the classes are, and what layers
// or the loss would refuse.
#pragma once

#include <cstdint>
#include <optional>

#include "engine/plan/plan.h"
#include "engine/plan/uncut_plan.h"

namespace strata {

/// Asks the training's data function for its first micro-batch, if there is one and `script` is not
/// null. Throws ConfigError as InferLayers().
MicroBatchShapes InferShapes(const Job& job, const Batch& batch, Script* script);

/// Sets plan.class_dim and its text for a loss of classes, and for a loss function whose metrics
/// count classes: what the script says (class_dim of the loss, or of eval), else the only dim of
/// the output that labels fit, as 1 or -1. Where two dims fit it sets none, and CheckData() refuses
/// the job. Of an output of two dims it sets none either.
/// REQUIRES: the shapes are known, and plan.batch is set.
void FindClassDim(const Job& job, const MicroBatchShapes& shapes, Plan& plan);

/// What the first layer or the loss would refuse in the first step, or in the evaluation after the
/// last, is refused before. Of a data function this is what it gives for micro-batch 0; texts need
/// not have all bytes.
/// REQUIRES: the shapes are known, and plan.batch and plan.class_dim are set.
void CheckData(const Job& job, const Plan& plan, const MicroBatchShapes& shapes, Script* script);

}  // namespace strata
