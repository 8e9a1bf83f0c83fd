// A plan for people and for programs.
#pragma once

#include <string>

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

/// "float32 " is left out: "(8, 10)", "int64 (8,)".
std::string FormatShapes(const TensorSpecs& specs);

}  // namespace strata
