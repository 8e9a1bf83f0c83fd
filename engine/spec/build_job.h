// From what a script wrote to a Job. Lua converts its tables into a RawJob; everything else, every
// key, every default and every refusal, is decided here.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/base/value.h"
#include "engine/spec/job.h"
#include "engine/spec/layer_spec.h"

namespace strata {

/// An item of the script's list of layers: a layer (a Lua function is a scripted one), a list of
/// items (flattened), or a mark by strata.cut().
struct RawLayer {
  enum class Kind { kLayer, kList, kCut };
  Kind kind = Kind::kLayer;
  LayerSpec layer;             ///< kLayer
  std::vector<RawLayer> list;  ///< kList
};

/// The argument of strata.job{...}.
struct RawJob {
  std::string script;  ///< path as given on the command line; "" at the prompt
  std::string where;   ///< place of the call, "alexnet.lua:7"
  /// Map of all keys but `layers`; CallOf() (fields.h) says how a mixed table becomes a Value.
  /// `data` and its members are what MakeDataSource() returned, or functions; a topology as
  /// `parallel` is a map of its degrees.
  Value keys;
  RawLayer layers;                ///< a kList, or the one Sequential that stands for its list
  std::optional<LayerSpec> loss;  ///< a loss layer; a function stays in `keys` ("loss")
};

/// The complete, checked job. `overrides` (overrides.h) hold over the script's keys, nested tables
/// name by name; another type of optimizer or lr_schedule, and another data source, replace what
/// the script said with all its options. Reads the file of a CSV schedule, beside the script.
/// Throws ConfigError for everything that is wrong in the declaration itself, and for keys and
/// values that a later build brings ("not built yet"). Names of schedules and partition methods are
/// checked by their owners, when the job is planned.
Job BuildJob(const RawJob& raw, const Value& overrides);

/// What `train` needs beyond a plan: data, a loss, and steps where the data has no end. Throws
/// ConfigError naming the keys.
void CheckTrainable(const Job& job);

}  // namespace strata
