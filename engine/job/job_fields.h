// The tables of fields (fields.h) of a job's keys, and of the tables inside a job.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/fields/fields.h"

namespace strata {

/// Every key of a job with its kind, default and help; `layers` and `loss` are among them.
const FieldTable& JobFields();

/// The tables of keys whose values are tables.
const FieldTable& InputFields();
const FieldTable& ParallelFields();
const FieldTable& BatchFields();
const FieldTable& RecomputeFields();  ///< for {every=N}
const FieldTable& EvalFields();
/// How texts are written: the flags of `strata generate`, the options of e:generate{}, and, with
/// `every`, of eval.samples.
const FieldTable& TextFields();
const FieldTable& StopFields();
const FieldTable& CallbackFields();
const FieldTable& DataFields();
const FieldTable& SaveFields();
const FieldTable& WeightsFields();

/// A type of optimizer or lr_schedule, with its options: {"sgd", lr=0.1}.
struct OptionTable {
  std::string name;
  FieldTable fields;
  /// Of an optimizer: the names of what it keeps of each trainable element, with these options. All
  /// optimizers have it.
  std::vector<std::string> (*moments)(const Value& options) = nullptr;
  /// Of an optimizer: what its update sees at once. All but kElements need whole parameters, which
  /// neither shares of replicas (zero = 1) nor the model axis may cut.
  enum class Sees { kElements, kParameters, kMatrices } sees = Sees::kElements;
};
/// PyTorch's names, order and defaults.
const std::vector<OptionTable>& OptimizerTypes();
const OptionTable& FindOptimizerType(const std::string& name);
/// A Lua function has no table.
const std::vector<OptionTable>& LrScheduleTypes();
/// The metrics of job.eval.metrics, and whether the larger one is the better.
const std::vector<std::pair<std::string, bool>>& MetricTypes();
/// The fields of a parameter group, without the optimizer's options.
const FieldTable& ParameterGroupFields();

}  // namespace strata
