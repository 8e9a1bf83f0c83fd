// Data as declarations: sources, the steps that make data of other data, their options, and the
// shapes of the samples they give. engine/data opens them.
//
// A step is a source that has others in its option `of`: strata.data.csv{"a.csv"}:take(5) is
// {source="take", of={source="csv", path="a.csv"}, count=5}. So all data is one plain value.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/fields/fields.h"
#include "engine/base/fields/tensor_spec.h"
#include "engine/job/job.h"

namespace strata {

/// What is known of the samples before one is read. Shapes are those of one sample, without the
/// batch dim.
struct DataFacts {
  int64_t samples = 0;  ///< 0 = only who opens the data can tell
  TensorSpecs inputs;
  TensorSpecs targets;                        ///< empty = none
  int64_t classes = 0;                        ///< of the target; 0 = the target is no class
  std::vector<std::string> class_names = {};  ///< where the data has some
  /// Those of the data that a function of the script (map) was given, which may give other labels.
  std::vector<std::string> names_before_map = {};
  std::string encoding = {};            ///< a digest: Dataset::encoding()
  std::vector<std::string> notes = {};  ///< Dataset::notes()
};
/// Without the notes.
Value ToValue(const DataFacts& facts);

/// Opens data to see what it holds. Throws as OpenDataset() (engine/data).
using ExamineData = std::function<DataFacts(const DataSpec& spec)>;

/// What is known about the source strata.data.NAME{...}, or the step data:NAME{...}.
struct DataSourceType {
  enum class Of { kNothing, kOne, kSeveral };  ///< kNothing: a source, else a step
  std::string name;
  FieldTable fields;
  std::string help;
  /// Fills in left-out options that follow from the job's `input` (the size of images, the length
  /// of sequences). Null = the source has no such options.
  std::function<void(Value& options, const TensorSpec& input)> fit = {};
  /// Shape and dtype of one sample's input and target, without the batch dim. `options` are
  /// canonical and fitted. Null = only who opens the data can tell: FactsOf() has what it told.
  std::function<TensorSpec(const Value& options)> input = {};
  std::function<TensorSpec(const Value& options)> target = {};
  /// Number of classes of the target; 0 = the target is no class.
  std::function<int64_t(const Value& options)> classes = {};
  Of of = Of::kNothing;
  /// Options that hold paths: where scripts may read is checked for them.
  std::vector<std::string> paths = {"path"};
  /// Options that must be given, unless the job's input tells them.
  std::vector<std::string> needs = {};
};

/// All sources, in the order of the help.
const std::vector<DataSourceType>& DataSourceTypes();
/// All steps, in the order of the help.
const std::vector<DataSourceType>& DataStepTypes();
/// The source or step of this exact name, or null.
const DataSourceType* FindDataSource(std::string_view name);

/// The result of strata.data.NAME{...} in a script: a map {source=NAME, where=..., option=value,
/// ...} with every option. Throws ConfigError as Canonicalize() does.
Value MakeDataSource(std::string_view name, const Value::List& positional, const Value::Map& named,
                     const std::string& where);

/// The result of data:NAME{...}, a step over `of`: a map as MakeDataSource() gives it, or a list of
/// them for a step over several. Throws ConfigError as Canonicalize() does.
Value MakeDataStep(std::string_view name, const Value& of, const Value::List& positional,
                   const Value::Map& named, const std::string& where);

/// The spec of such a map, or of a function(i) -> input, target; null gives an empty spec. `input`
/// is the job's input, or null. `examine` tells the facts of data whose declaration does not; they
/// become a part of the options. Throws ConfigError when the source's samples have another shape
/// than `input`, and when an option is left out that needs `input` and there is none.
DataSpec ParseDataSpec(const Value& value, const TensorSpec* input, const std::string& where,
                       const ExamineData& examine = {});

/// What is known of the samples. REQUIRES: ParseDataSpec() gave `spec`, and HasEnd(). `samples` is
/// 0 where the declaration tells the rest, so that nobody opened the data.
DataFacts FactsOf(const DataSpec& spec);

/// The first value of an option in a source and, for a step that lacks it, in what it is made of.
const Value& FindOption(const Value& source, std::string_view name);

/// Whether something is true of the kind of a source or, behind steps, of any that it is made of.
bool AnySource(const DataSpec& spec, const std::function<bool(std::string_view kind)>& is_true);

/// Ends errors about int64 where a script's numbers were to be float32, or the other way round.
inline constexpr char kWholeNumbers[] =
    "; whole numbers make int64, F.tensor(list, {dtype = \"float32\"}) does not";

/// True when the data has an end, so that there are epochs. A function has none.
bool HasEnd(const DataSpec& spec);

}  // namespace strata
