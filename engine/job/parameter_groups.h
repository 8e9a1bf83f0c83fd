// Parameter groups: which optimizer options hold for which parameter.
#pragma once

#include <string>
#include <vector>

#include "engine/job/job.h"
#include "engine/job/job_fields.h"

namespace strata {

/// One parameter of the model.
struct NamedParameter {
  int layer;
  std::string name;  ///< that saves have, "3.weight"; a tied one has the name of its first use
  ParameterSpec spec;
};
std::vector<NamedParameter> NamedParametersOf(const std::vector<LayerSpec>& layers, int layer);

/// A group's `dims` as ParameterGroup has it: 2 and "2" are "==2"; null is "". Throws ConfigError.
std::string ParseDims(const Value& value);

/// The index of the first group that takes the parameter, or -1 if the optimizer's own options
/// hold. `parameter` is the name within the layer. A group takes a parameter if each of its
/// conditions holds:
///   layers      selects the layer
///   parameters  is found in NamedParameter::name
///   dims        fits the number of the parameter's dims
/// REQUIRES: the layer has the parameter.
int FindParameterGroup(const OptimizerSpec& optimizer, const std::vector<LayerSpec>& layers,
                       int layer, const std::string& parameter);

/// Throws ConfigError for a group that takes no parameter (with the nearest name), selects layers
/// which are not there, or whose regular expression is broken.
void CheckParameterGroups(const OptimizerSpec& optimizer, const std::vector<LayerSpec>& layers);

/// Values that the optimizer keeps of each trainable element beside its value and its gradient;
/// those of groups with another optimizer are more or fewer by ExtraState().
int CountMoments(const OptimizerSpec& optimizer);

/// Elements of state that a layer's parameter of this type has beyond those that CountMoments()
/// says: those of its group's own optimizer, what an optimizer keeps of a parameter as a whole, and
/// what averages take beyond the type.
int64_t ExtraState(const OptimizerSpec& optimizer, const std::vector<LayerSpec>& layers, int layer,
                   const ParameterSpec& parameter, DType type = DType::kFloat32);

/// The optimizer of a group; -1 gives the optimizer's own.
const std::string& GroupType(const OptimizerSpec& optimizer, int group);

/// The most that the optimizer or a group's sees at once.
OptionTable::Sees SeesAtOnce(const OptimizerSpec& optimizer);

/// Throws ConfigError for ZeRO-1 and the model axis where the optimizer sees whole parameters.
void CheckWholeParameters(const Job& job);

/// Every option of the optimizer as it holds for a group; -1 gives the optimizer's own.
Value GroupOptions(const OptimizerSpec& optimizer, int group);

}  // namespace strata
