// Matches classes by name. Data from several files may number the same classes differently; the
// numbers of the first file (the training data) are used for all.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/fields/tensor_spec.h"
#include "engine/job/data_source.h"
#include "engine/job/job.h"

namespace strata {

/// The classes of some data, in the order of their numbers.
struct NamedClasses {
  std::string whose;  ///< the key of the data, for messages: "data.test"
  std::vector<std::string> names;
  TensorSpecs targets;
};

/// Returns, for each class of `theirs`, the number of the class with the same name in `ours`.
/// Throws ConfigError with both lists if `ours` lacks a class, or if the targets of `theirs` are
/// not class numbers.
std::vector<int64_t> NumbersOfClasses(const NamedClasses& theirs, const NamedClasses& ours);

/// The facts of some data, with its key for messages.
struct NamedFacts {
  std::string whose;  ///< "data.test"
  DataFacts facts;
};

/// Throws ConfigError if both tables were converted into numbers in different ways, or if both had
/// different classes before a function of the script (map) that may have changed their numbers.
void RequireAlike(const NamedFacts& ours, const NamedFacts& theirs);

/// If the test data numbers its classes differently, sets its option `class_names` to those of the
/// training data; OpenDataset() then renumbers the targets. Also removes the names from the facts
/// in the options, which ranks compare. The names of the training data are kept in
/// `train.class_names`, for saves; if a function of the script (map) hides the names, those before
/// the map are kept. Throws ConfigError as NumbersOfClasses() and RequireAlike() do.
void MatchClasses(DataSpec& train, DataSpec& test);

}  // namespace strata
