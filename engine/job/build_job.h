// BuildJob(): turns the argument of strata.job{...} into a checked Job. Lua only converts its
// tables into a RawJob. All keys, defaults and refusals are decided here.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/value.h"
#include "engine/job/data_source.h"
#include "engine/job/job.h"
#include "engine/layers/layer_spec.h"

namespace strata {

/// An item of the script's list of layers: a layer (a Lua function is a scripted layer), a list of
/// items (which is flattened), or a mark made by strata.cut().
struct RawLayer {
  enum class Kind { kLayer, kList, kCut };
  Kind kind = Kind::kLayer;
  LayerSpec layer;             ///< kLayer
  std::vector<RawLayer> list;  ///< kList
};

/// Calls a function of the script with plain values and returns its plain result.
using CallFunction = std::function<Value(const FunctionRef&, const Value::List&)>;

/// The argument of strata.job{...}, converted from Lua but not checked.
struct RawJob {
  /// The script's path as given on the command line; "" at the prompt.
  std::string script;
  std::string where;  ///< the place of the call, "alexnet.lua:7"
  /// A map of all keys except `layers`. CallOf() (fields.h) says how a table with positions and
  /// names becomes a Value. `data` and its members are results of MakeDataSource() or functions. If
  /// the script gives a topology as `parallel`, this holds a map of its degrees.
  Value keys;
  /// A kList, or one Sequential, which is used as its list.
  RawLayer layers;
  /// A loss layer. A loss function is in `keys` ("loss") instead.
  std::optional<LayerSpec> loss;
  /// Opens data whose declaration does not determine its shapes.
  ExamineData examine = {};
  /// Calls the script's functions that decide a key, such as freeze = function(layer).
  CallFunction call = {};
};

/// Returns the complete, checked job. `overrides` (overrides.h) take precedence over the script's
/// keys; in nested tables, name by name. If an override has another type of optimizer or
/// lr_schedule, or another data source, the script's one is dropped with all its options. Reads the
/// file of a CSV schedule, relative to the script. Throws ConfigError for every mistake in the
/// declaration, and for keys and values that are not built yet. Names of schedules and of partition
/// methods are not checked here; MakePlan() does that.
Job BuildJob(const RawJob& raw, const Value& overrides);

/// Checks that the job has what training needs in addition to a plan: data, a loss, `steps` if the
/// data has no end, and the evaluations that stop, save.best, a plateau and eval.samples look at.
/// Throws ConfigError that names the missing keys.
void CheckTrainable(const Job& job);

}  // namespace strata
