// Checks that planning makes with a job's data: shapes, the dim of the classes, and faults that a
// layer or the loss would report only when they run.
#pragma once

#include <cstdint>
#include <optional>

#include "engine/plan/plan.h"
#include "engine/plan/uncut_plan.h"

namespace strata {

/// Infers the shapes of a micro-batch. If the training has a data function and `script` is not
/// null, calls it for its first micro-batch. Throws ConfigError as InferLayers() does.
MicroBatchShapes InferShapes(const Job& job, const Batch& batch, Script* script);

/// Sets plan.class_dim and its text for a loss of classes, and for a loss function whose metrics
/// count classes: what the script says (class_dim of the loss, or of eval), else the only dim of
/// the output that labels fit, as 1 or -1. Where two dims fit it sets none, and CheckData() refuses
/// the job. If the shapes are not known, or the output has two dims, it sets only what eval says.
/// REQUIRES: plan.batch is set.
void FindClassDim(const Job& job, const MicroBatchShapes& shapes, Plan& plan);

/// Throws ConfigError for data that the first layer or the loss would refuse in the first step, or
/// in the evaluation after the last step. A data function is checked by its micro-batch 0. Text
/// files need not have been read completely. REQUIRES: the shapes are known, and plan.batch and
/// plan.class_dim are set.
void CheckData(const Job& job, const Plan& plan, const MicroBatchShapes& shapes, Script* script);

}  // namespace strata
