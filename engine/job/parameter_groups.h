// Parameter groups: which optimizer options apply to which parameter.
#pragma once

#include <string>
#include <vector>

#include "engine/job/job.h"
#include "engine/job/job_fields.h"

namespace strata {

/// One parameter of a layer.
struct NamedParameter {
  int layer;
  /// The name in saves, such as "3.weight". A tied parameter has the name of its first use.
  std::string name;
  ParameterSpec spec;
};
std::vector<NamedParameter> NamedParametersOf(const std::vector<LayerSpec>& layers, int layer);

/// The condition `dims` of a group in canonical form: 2 and "2" become "==2"; null becomes "".
/// Throws ConfigError for other values than numbers and comparisons.
std::string ParseDims(const Value& value);

/// The index of the first group that takes the parameter, or -1 if there is none, so that the
/// optimizer's own options apply. `parameter` is the name within the layer. A group takes a
/// parameter if each of its conditions holds:
///   layers      selects the layer
///   parameters  is found in NamedParameter::name
///   dims        fits the number of the parameter's dims
/// REQUIRES: the layer has the parameter.
int FindParameterGroup(const OptimizerSpec& optimizer, const std::vector<LayerSpec>& layers,
                       int layer, const std::string& parameter);

/// Throws ConfigError for a group that takes no parameter (with the nearest name), selects layers
/// that do not exist, or has a broken regular expression; and for a parameter that its optimizer
/// cannot update (muon takes matrices only).
void CheckParameterGroups(const OptimizerSpec& optimizer, const std::vector<LayerSpec>& layers);

/// The number of state elements that the optimizer keeps per trainable element, beside the value
/// and the gradient. Groups with another optimizer may keep more or fewer; ExtraState() gives the
/// difference.
int CountMoments(const OptimizerSpec& optimizer);

/// The state elements of a parameter beyond CountMoments() per element; may be negative. They are
/// those of the group's own optimizer, those that an optimizer keeps for a parameter as a whole
/// (Adafactor), and those of moving averages if `type` has two bytes.
int64_t ExtraState(const OptimizerSpec& optimizer, const std::vector<LayerSpec>& layers, int layer,
                   const ParameterSpec& parameter, DType type = DType::kFloat32);

/// The type of optimizer of a group; -1 stands for the parameters without a group.
const std::string& GroupType(const OptimizerSpec& optimizer, int group);

/// The largest part of a parameter that the updates of the optimizer and its groups must see.
OptionTable::Sees SeesAtOnce(const OptimizerSpec& optimizer);

/// Throws ConfigError if the optimizer needs whole parameters and ZeRO-1 or the model axis cuts
/// them.
void CheckWholeParameters(const Job& job);

/// Every option of the optimizer as it applies to a group; -1 stands for the parameters without a
/// group.
Value GroupOptions(const OptimizerSpec& optimizer, int group);

}  // namespace strata
