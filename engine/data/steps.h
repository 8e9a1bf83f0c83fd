// Steps: data made of other data. One function for each; the table is in
// engine/data/open_dataset.cc. Options are canonical (engine/job/data_steps.cc).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/data/dataset.h"
#include "engine/job/class_names.h"

namespace strata::data {

/// What a step is of: one, or several for concat.
using StepInputs = std::vector<std::shared_ptr<const Dataset>>;

/// Whether both have names of classes, and not the same ones.
bool HasOtherClasses(const Dataset& data, const std::vector<std::string>& names);
/// The data, its classes in the numbers that `ours` gives them (relabelled.cc). Throws ConfigError
/// as NumbersOfClasses() does, where the data is called `whose`.
std::unique_ptr<Dataset> WithClasses(std::shared_ptr<const Dataset> of, const NamedClasses& ours,
                                     const std::string& whose);

// Which samples (choosing.cc).
std::unique_ptr<Dataset> OpenPart(const Value& options, StepInputs of,
                                  const DatasetContext& context);
std::unique_ptr<Dataset> OpenTake(const Value& options, StepInputs of,
                                  const DatasetContext& context);
/// Throws ConfigError when the samples have other shapes or dtypes.
std::unique_ptr<Dataset> OpenConcat(const Value& options, StepInputs of,
                                    const DatasetContext& context);
std::unique_ptr<Dataset> OpenShuffled(const Value& options, StepInputs of,
                                      const DatasetContext& context);
/// Reads every sample once. Throws ConfigError when none is kept.
std::unique_ptr<Dataset> OpenFilter(const Value& options, StepInputs of,
                                    const DatasetContext& context);

// What becomes of a sample (making.cc).
std::unique_ptr<Dataset> OpenCache(const Value& options, StepInputs of,
                                   const DatasetContext& context);
/// The function tells the shapes of all samples by what it makes of the first one.
std::unique_ptr<Dataset> OpenMap(const Value& options, StepInputs of,
                                 const DatasetContext& context);

// Images and vectors (transforms.cc). Each changes the first input. Random numbers depend on the
// seed, the epoch and the index of the sample only.
std::unique_ptr<Dataset> OpenResize(const Value& options, StepInputs of,
                                    const DatasetContext& context);
std::unique_ptr<Dataset> OpenRandomCrop(const Value& options, StepInputs of,
                                        const DatasetContext& context);
std::unique_ptr<Dataset> OpenFlip(const Value& options, StepInputs of,
                                  const DatasetContext& context);
std::unique_ptr<Dataset> OpenJitter(const Value& options, StepInputs of,
                                    const DatasetContext& context);
std::unique_ptr<Dataset> OpenNormalise(const Value& options, StepInputs of,
                                       const DatasetContext& context);
std::unique_ptr<Dataset> OpenToFloat(const Value& options, StepInputs of,
                                     const DatasetContext& context);
std::unique_ptr<Dataset> OpenOneHot(const Value& options, StepInputs of,
                                    const DatasetContext& context);
std::unique_ptr<Dataset> OpenMixUp(const Value& options, StepInputs of,
                                   const DatasetContext& context);

}  // namespace strata::data
