// Data sources as declarations: their options, and the shapes of the samples they give. engine/data
// opens the sources.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/spec/fields/fields.h"
#include "engine/spec/fields/tensor_spec.h"
#include "engine/spec/job/job.h"

namespace strata {

/// What is known about the source strata.data.NAME{...}.
struct DataSourceType {
  std::string name;
  FieldTable fields;
  std::string help;
  /// Fills in left-out options that follow from the job's `input` (the size of images, the length
  /// of sequences). Null = the source has no such options.
  std::function<void(Value& options, const TensorSpec& input)> fit;
  /// Shape and dtype of one sample's input and target, without the batch dim. `options` are
  /// canonical and fitted.
  std::function<TensorSpec(const Value& options)> input;
  std::function<TensorSpec(const Value& options)> target;
  /// Number of classes of the target; 0 = the target is no class.
  std::function<int64_t(const Value& options)> classes;
};

/// All sources, in the order of the help.
const std::vector<DataSourceType>& DataSourceTypes();
/// The source of this exact name, or null.
const DataSourceType* FindDataSource(std::string_view name);

/// The result of strata.data.NAME{...} in a script: a map {source=NAME, where=..., option=value,
/// ...} with every option. Throws ConfigError as Canonicalize() does.
Value MakeDataSource(std::string_view name, const Value::List& positional, const Value::Map& named,
                     const std::string& where);

/// The spec of such a map, or of a function(i) -> input, target; null gives an empty spec. `input`
/// is the job's input, or null. Throws ConfigError when the source's samples have another shape
/// than `input`, and when an option is left out that needs `input` and there is none.
DataSpec ParseDataSpec(const Value& value, const TensorSpec* input, const std::string& where);

/// True when the data has an end, so that there are epochs. A function has none.
bool HasEnd(const DataSpec& spec);

}  // namespace strata
