// The field tables (fields.h) of a job's keys, and of the tables inside a job.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/fields/fields.h"

namespace strata {

/// Every key of a job with its kind, default and help; `layers` and `loss` are among them.
const FieldTable& JobFields();

/// The tables of those keys whose values are tables.
const FieldTable& InputFields();
const FieldTable& ParallelFields();
const FieldTable& BatchFields();
const FieldTable& RecomputeFields();  ///< for {every=N}
const FieldTable& CheckFields();      ///< for {every=N}
const FieldTable& EvalFields();
/// The options for writing texts: flags of `strata generate`, options of e:generate{} and, together
/// with `every`, of eval.samples.
const FieldTable& TextFields();
const FieldTable& StopFields();
const FieldTable& CallbackFields();
const FieldTable& DataFields();
const FieldTable& SaveFields();
const FieldTable& WeightsFields();

/// A type of optimizer, lr_schedule or precision with its options: {"sgd", lr=0.1}.
struct OptionTable {
  std::string name;
  FieldTable fields;
  /// Optimizers only: the names of the state tensors that it keeps per trainable element with these
  /// options (Adam: exp_avg, exp_avg_sq). Every optimizer sets it.
  std::vector<std::string> (*moments)(const Value& options) = nullptr;
  /// Optimizers only: the part of a parameter that one update must see. All but kElements need
  /// whole parameters, which neither the shares of replicas (zero = 1) nor the model axis may cut.
  enum class Sees { kElements, kParameters, kMatrices } sees = Sees::kElements;
};
/// The optimizers. Names, order and defaults of their options are PyTorch's.
const std::vector<OptionTable>& OptimizerTypes();
const OptionTable& FindOptimizerType(const std::string& name);
/// The schedules. A schedule that is a Lua function is not in the table.
const std::vector<OptionTable>& LrScheduleTypes();
/// The types of `adapt`.
const std::vector<OptionTable>& AdaptTypes();
/// The metrics of job.eval.metrics; true if larger values are better.
const std::vector<std::pair<std::string, bool>>& MetricTypes();
/// The fields of a parameter group, without the optimizer's options.
const FieldTable& ParameterGroupFields();

}  // namespace strata
