// ReadingInput(): a job's test data with a file of somebody's in its place, to be predicted for.
#pragma once

#include <string>

#include "engine/base/fields/tensor_spec.h"
#include "engine/base/value.h"

namespace strata {

/// The source of data.test (a map as MakeDataSource() gives it, else nothing is known of it) that
/// reads the file or folder `path` instead, and no targets. What makes samples of what is read
/// stays: the steps, and the options of the innermost source where `path` is of its kind, classes
/// and means of a table included. What chooses samples, or changes them for training, goes. A file
/// of another kind is read by the source of its ending; images in the place of cifar10's are
/// normalised as those, and `input`, that of a sample of the job, may tell their size. Throws
/// ConfigError, at `where`, for a path that no source is known for, and for one whose source would
/// not scale numbers as the job's table is scaled.
Value ReadingInput(const Value& source, const std::string& path, const std::string& where,
                   const TensorSpec* input = nullptr);

}  // namespace strata
