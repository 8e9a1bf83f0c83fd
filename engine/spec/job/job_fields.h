// The tables of fields (fields.h) of a job's keys, and of the tables inside a job.
#pragma once

#include <string_view>
#include <vector>

#include "engine/spec/fields/fields.h"

namespace strata {

/// Every key of a job with its kind, default and help; `layers` and `loss` are among them.
const FieldTable& JobFields();

/// The tables of keys whose values are tables.
const FieldTable& InputFields();
const FieldTable& ParallelFields();
const FieldTable& BatchFields();
const FieldTable& RecomputeFields();  ///< for {every=N}
const FieldTable& EvalFields();
const FieldTable& DataFields();
const FieldTable& SaveFields();
const FieldTable& WeightsFields();

/// A type of optimizer or lr_schedule, with its options: {"sgd", lr=0.1}.
struct OptionTable {
  std::string name;
  FieldTable fields;
  /// Of an optimizer: values that it keeps of each trainable element, with these options. All
  /// optimizers have it.
  int (*moments)(const Value& options) = nullptr;
};
/// "sgd", "adam", "adamw": PyTorch's names, order and defaults.
const std::vector<OptionTable>& OptimizerTypes();
/// "constant", "warmup", "linear", "cosine", "step". A Lua function has no table.
const std::vector<OptionTable>& LrScheduleTypes();
/// The fields of a parameter group, without the optimizer's options.
const FieldTable& ParameterGroupFields();

}  // namespace strata
