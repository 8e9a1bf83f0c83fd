// From what a script wrote to a Job. Lua converts its tables into a RawJob; everything else, every
// key, every default and every refusal, is decided here.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/value.h"
#include "engine/spec/fields.h"
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
  std::string script;             ///< path as given on the command line; "" at the prompt
  std::string where;              ///< place of the call, "alexnet.lua:7"
  Value keys;                     ///< map of all keys but `layers`; see CallOf() for mixed tables
  std::vector<RawLayer> layers;   ///< a Sequential at the top is its list
  std::optional<LayerSpec> loss;  ///< a loss layer; a function stays in `keys` ("loss")
};

/// Every key of a job with its kind, default and help. `layers` and `loss` are among them.
const FieldTable& JobFields();

/// The field behind a flag: "steps", "optimizer.lr", "data.train.path", or bare "pipe" and
/// "micro_batches"; null when there is none. '-' counts as '_'.
const Field* FindJobField(std::string_view path);
/// All paths that FindJobField knows, bare ones included: for nearest names and completion.
std::vector<std::string> JobFieldPaths();

/// Puts `value` at a key of `overrides`, which may be dotted or bare ("pipe" means parallel.pipe).
/// Throws ConfigError with the nearest name. `where` as in Call.
void SetOverride(Value& overrides, std::string_view path, Value value, const std::string& where);
/// The overrides that a table such as job:plan{pipe=2, ["optimizer.lr"]=0.1} asks for.
Value Overrides(const Value& keys, const std::string& where);

/// The complete, checked job. `overrides` (from Overrides() or Flags) hold over the script's keys,
/// nested tables name by name; another optimizer type replaces the script's options with it.
/// Throws ConfigError for everything that is wrong in the declaration itself, and for keys and
/// values that a later build brings ("comes later; this build has ...").
Job BuildJob(const RawJob& raw, const Value& overrides);

/// What `train` needs beyond a plan: data, a loss, an optimizer, a batch, and steps or epochs where
/// the data has no end. Throws ConfigError naming the keys.
void CheckTrainable(const Job& job);

}  // namespace strata
