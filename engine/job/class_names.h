// Classes by name: what data of several files calls its classes, in numbers of the first one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/fields/tensor_spec.h"
#include "engine/job/data_source.h"
#include "engine/job/job.h"

namespace strata {

/// The classes of data, in the order of their numbers.
struct NamedClasses {
  std::string whose;  ///< "data.test"
  std::vector<std::string> names;
  TensorSpecs targets;
};

/// The number in `ours` of each of `theirs`. Throws ConfigError with both lists where `ours` lacks
/// one, or where targets of `theirs` are no numbers of classes.
std::vector<int64_t> NumbersOfClasses(const NamedClasses& theirs, const NamedClasses& ours);

/// Data and what is known of it.
struct NamedFacts {
  std::string whose;  ///< "data.test"
  DataFacts facts;
};

/// Throws ConfigError where columns of both became numbers in another way, and where both have
/// other classes, of which a function of the script (map) may have changed the numbers.
void RequireAlike(const NamedFacts& ours, const NamedFacts& theirs);

/// Gives the test data the option `class_names`, the training's, where its own are others: who
/// opens it takes them. Names leave the facts, which ranks compare; those of the training data stay
/// beside them, for saves: where a function of the script (map) has none, those that it was given.
/// Throws ConfigError as above.
void MatchClasses(DataSpec& train, DataSpec& test);

}  // namespace strata
