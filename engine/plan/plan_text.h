// A plan for people and for programs.
#pragma once

#include <string>
#include <vector>

#include "engine/layers/parts.h"
#include "engine/plan/plan.h"

namespace strata {

/// Tables of layers and of stages, and the grid, in lines of text.
std::string PlanText(const Plan& plan);
/// The same without the layers.
std::string StagesText(const Plan& plan);

/// {layers = [{index, type, path, parameters, frozen, output, stage}], bounds, stages = [{stage,
/// rank, begin, end, parameters, input, output}], parameters, parallel, batch}. Shapes are lists of
/// {shape, dtype}.
Value PlanValue(const Plan& plan);

/// The layers as people see them: those that are in parts as one where no cut is inside. `index` is
/// that of the first part.
std::vector<LayerPlan> ShownLayers(const Plan& plan);
/// The layer's path, of a part that of its layer.
std::string WholePath(const LayerPlan& layer);

/// How its places are written, and its cuts: "0,4.1,11".
CutNames CutNamesOf(const Plan& plan);
std::string CutsText(const Plan& plan, const char* separator = ",");

/// What messages call a rank of the pipe axis: "pipe rank ", or "rank " where there is no other
/// axis.
const char* PipeRank(const Plan& plan);

/// Which layers have gone where, of two plans that differ in their cuts alone: "layers 3..5 from
/// rank 1 to rank 0"; "" where none have. With replicas ranks are those of the pipe axis.
std::string MovesText(const Plan& before, const Plan& after);

/// "float32 " is left out: "(8, 10)", "int64 (8,)".
std::string FormatShapes(const TensorSpecs& specs);

}  // namespace strata
