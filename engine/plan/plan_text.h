// Formats a plan, as text for the terminal and as a value for scripts.
#pragma once

#include <string>
#include <vector>

#include "engine/layers/parts.h"
#include "engine/plan/plan.h"

namespace strata {

/// The plan as text: tables of layers and of stages, parameters and cuts.
std::string PlanText(const Plan& plan);
/// The same text without the table of layers.
std::string StagesText(const Plan& plan);

/// The plan as a value: {layers = [{index, type, path, parameters, frozen, output, stage,
/// recompute}], bounds, stages = [{stage, rank, begin, end, parameters, input, output}],
/// parameters, parallel, batch}. Shapes are lists of {shape, dtype}.
Value PlanValue(const Plan& plan);

/// The layers as they are shown to users: a layer that is in parts is one layer, unless a cut is
/// inside it. `index` is that of the first part.
std::vector<LayerPlan> ShownLayers(const Plan& plan);
/// The path of the layer; for a part, the path of the layer that it belongs to.
std::string WholePath(const LayerPlan& layer);

/// How places in the plan's list, and its cuts, are written: "0,4.1,11".
CutNames CutNamesOf(const Plan& plan);
std::string CutsText(const Plan& plan, const char* separator = ",");

/// The words for a rank of the pipe axis in messages: "pipe rank ", or "rank " if there is no other
/// axis.
const char* PipeRank(const Plan& plan);

/// Tells which layers have moved between two plans that differ only in their cuts: "layers 3..5
/// from rank 1 to rank 0"; "" if none has. With replicas, the ranks are those of the pipe axis.
std::string MovesText(const Plan& before, const Plan& after);

/// Formats shapes: "(8, 10)", "int64 (8,)". The dtype float32 is left out.
std::string FormatShapes(const TensorSpecs& specs);

}  // namespace strata
