// ReadingInput(): makes the source for `strata predict --input`, which reads a user's file as the
// job reads its test data.
#pragma once

#include <string>

#include "engine/base/fields/tensor_spec.h"
#include "engine/base/value.h"

namespace strata {

/// Returns the source of data.test (a map from MakeDataSource(), or another value if nothing is
/// known of it), changed to read the file or folder `path`, without targets.
///
/// Steps and options that make samples from the file's content stay. The options of the innermost
/// source stay too if `path` is a file of its kind; a table keeps the classes and means of the
/// job's own table. Steps that choose samples or change them for training are dropped. A file of
/// another kind is read by the source for its ending. Images in the place of cifar10's are
/// normalised as those; `input`, the spec of a sample of the job, may determine their size.
///
/// Throws ConfigError, at the place `where`, for a path that no source can read, and if its source
/// would not scale numbers as the job's table is scaled.
Value ReadingInput(const Value& source, const std::string& path, const std::string& where,
                   const TensorSpec* input = nullptr);

}  // namespace strata
