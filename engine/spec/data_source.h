// Data sources as declarations: their options, and the sample that each gives. engine/data opens
// them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/spec/fields.h"
#include "engine/spec/job.h"
#include "engine/spec/tensor_spec.h"

namespace strata {

/// strata.data.NAME{...}
struct DataSourceType {
  std::string name;
  FieldTable fields;
  std::string help;
  /// Completes options that follow from the job's `input` when they are left out (the size of
  /// images, the length of sequences). Null = there are none.
  std::function<void(Value& options, const TensorSpec& input)> fit;
  /// One sample, without the batch dim; `options` are canonical and fitted.
  std::function<TensorSpec(const Value& options)> input;
  std::function<TensorSpec(const Value& options)> target;
  /// Number of classes of the target; 0 = it has none.
  std::function<int64_t(const Value& options)> classes;
};

const std::vector<DataSourceType>& DataSourceTypes();
/// The type of that exact name, or null.
const DataSourceType* FindDataSource(std::string_view name);

/// What strata.data.NAME{...} returns to the script: a map {source=NAME, where=..., option=value,
/// ...} with every option. Throws ConfigError as Canonicalize does.
Value MakeDataSource(std::string_view name, const Value::List& positional, const Value::Map& named,
                     const std::string& where);

/// The spec of such a map, or of a function(i) -> input, target; null gives an empty spec. `input`:
/// the job's, or null. Throws ConfigError where the source gives samples of another shape, or
/// leaves open what only `input` could tell.
DataSpec ParseDataSpec(const Value& value, const TensorSpec* input, const std::string& where);

/// Whether one pass over it ends. A function's does not.
bool HasEnd(const DataSpec& spec);

}  // namespace strata
