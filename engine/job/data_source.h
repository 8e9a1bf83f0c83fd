// Data as declarations: sources, steps that make data from other data, their options, and the
// shapes of their samples. This file opens no data; engine/data does.
//
// A step is a source with other sources in its option `of`: strata.data.csv{"a.csv"}:take(5) is
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
#include "engine/layers/document_limits.h"

namespace strata {

/// The facts of data that are known before a sample is read. Shapes are those of one sample,
/// without the batch dim.
struct DataFacts {
  int64_t samples = 0;  ///< 0 = not known until the data is opened
  TensorSpecs inputs;
  TensorSpecs targets;  ///< empty = the data has no targets
  /// Number of classes of the target; 0 = the target is not a class.
  int64_t classes = 0;
  std::vector<std::string> class_names = {};  ///< empty = the classes have no names
  /// The class names of the data before a function of the script (map), which may have changed the
  /// labels. Equal to class_names if there is no map.
  std::vector<std::string> names_before_map = {};
  /// The digest Dataset::encoding(): how cells of a table became numbers.
  std::string encoding = {};
  std::vector<std::string> notes = {};  ///< the notes for the user, Dataset::notes()
  DocumentLimits documents = {};        ///< of packed rows
};
/// The facts as a map, without the notes.
Value ToValue(const DataFacts& facts);

/// Opens data to determine its facts. Throws as OpenDataset() (engine/data) does.
using ExamineData = std::function<DataFacts(const DataSpec& spec)>;

/// A type of source, strata.data.NAME{...}, or of step, data:NAME{...}.
struct DataSourceType {
  /// The number of sources that it is made from: kNothing for a source, the others for steps.
  enum class Of { kNothing, kOne, kSeveral };
  std::string name;
  FieldTable fields;
  std::string help;
  /// Fills in omitted options that follow from the job's `input` (the size of images, the length of
  /// sequences). Null = the source has no such options.
  std::function<void(Value& options, const TensorSpec& input)> fit = {};
  /// Shape and dtype of one sample's input and target, without the batch dim. `options` are
  /// canonical and fitted. Null = they are known only after the data was opened; FactsOf() has them
  /// then.
  std::function<TensorSpec(const Value& options)> input = {};
  std::function<TensorSpec(const Value& options)> target = {};
  /// Number of classes of the target; 0 = the target is not a class.
  std::function<int64_t(const Value& options)> classes = {};
  Of of = Of::kNothing;
  /// The options that hold paths. They are checked against the folders that scripts may read.
  std::vector<std::string> paths = {"path"};
  /// Options that must be given, unless fit() derives them from the job's input.
  std::vector<std::string> needs = {};
};

/// All sources, in the order of the help.
const std::vector<DataSourceType>& DataSourceTypes();
/// All steps, in the order of the help.
const std::vector<DataSourceType>& DataStepTypes();
/// The source or step of this exact name, or null.
const DataSourceType* FindDataSource(std::string_view name);

/// Returns the result of strata.data.NAME{...} in a script: a map {source=NAME, where=...,
/// option=value, ...} with every option. Throws ConfigError as Canonicalize() does.
Value MakeDataSource(std::string_view name, const Value::List& positional, const Value::Map& named,
                     const std::string& where);

/// Returns the result of data:NAME{...}, a step over `of`: a map from MakeDataSource(), or a list
/// of such maps for a step over several. Throws ConfigError as Canonicalize() does.
Value MakeDataStep(std::string_view name, const Value& of, const Value::List& positional,
                   const Value::Map& named, const std::string& where);

/// Converts such a map, or a function(i) -> input, target, into a spec; null gives an empty spec.
/// `input` is the job's input, or null. `examine` determines the facts of data whose declaration
/// does not; they become a part of the options. Throws ConfigError if the source's samples have
/// another shape than `input`, and if an option is missing that can only be derived from `input`
/// and there is none.
DataSpec ParseDataSpec(const Value& value, const TensorSpec* input, const std::string& where,
                       const ExamineData& examine = {});

/// The facts of the samples. `samples` is 0 if the declaration determines the shapes, since the
/// data was then not opened. REQUIRES: `spec` is from ParseDataSpec(), and HasEnd(spec).
DataFacts FactsOf(const DataSpec& spec);

/// The first value that is not null of an option in a source or, for a step that lacks it, in the
/// (first) source that the step is made from. Null if there is none.
const Value& FindOption(const Value& source, std::string_view name);

/// True if `is_true` holds for the kind of the source itself, or of any source that it is made
/// from.
bool AnySource(const DataSpec& spec, const std::function<bool(std::string_view kind)>& is_true);

/// The end of error messages about int64 numbers of a script that should be float32, or the other
/// way round.
inline constexpr char kWholeNumbers[] =
    "; whole numbers make int64, F.tensor(list, {dtype = \"float32\"}) does not";

/// True if the data has an end, so that there are epochs. Data from a function has none.
bool HasEnd(const DataSpec& spec);

}  // namespace strata
