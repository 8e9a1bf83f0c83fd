// Steps: data made from other data, one function per step. The table is in
// engine/data/open_dataset.cc. Options are canonical (engine/job/data_steps.cc).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/data/dataset.h"
#include "engine/job/class_names.h"

namespace strata::data {

/// The data that a step is made from: one dataset, or several for concat.
using StepInputs = std::vector<std::shared_ptr<const Dataset>>;

/// True if the data has class names and `names` are given, and they differ.
bool HasOtherClasses(const Dataset& data, const std::vector<std::string>& names);
/// Returns the data with its classes renumbered as `ours` numbers them (relabelled.cc). Throws
/// ConfigError as NumbersOfClasses() does; `whose` is the name of the data in messages.
std::unique_ptr<Dataset> WithClasses(std::shared_ptr<const Dataset> of, const NamedClasses& ours,
                                     const std::string& whose);

// Steps that choose samples (choosing.cc).
std::unique_ptr<Dataset> OpenPart(const Value& options, StepInputs of,
                                  const DatasetContext& context);
std::unique_ptr<Dataset> OpenTake(const Value& options, StepInputs of,
                                  const DatasetContext& context);
/// Throws ConfigError if the parts have different shapes, dtypes or encodings, or a class that the
/// first part with class names lacks.
std::unique_ptr<Dataset> OpenConcat(const Value& options, StepInputs of,
                                    const DatasetContext& context);
std::unique_ptr<Dataset> OpenShuffled(const Value& options, StepInputs of,
                                      const DatasetContext& context);
/// Reads every sample once. Throws ConfigError if no sample is kept.
std::unique_ptr<Dataset> OpenFilter(const Value& options, StepInputs of,
                                    const DatasetContext& context);

// Steps that change samples (making.cc).
std::unique_ptr<Dataset> OpenCache(const Value& options, StepInputs of,
                                   const DatasetContext& context);
/// Calls the function for sample 0 to learn the shapes, which all samples must have.
std::unique_ptr<Dataset> OpenMap(const Value& options, StepInputs of,
                                 const DatasetContext& context);

/// Packs documents into rows of `length` tokens (pack.cc). Reads every document once. The inputs
/// are the tokens and the place of each token in its document, from 0 on; so a document begins
/// where the place is 0. Targets behind the last document are kNoLabel. Throws ConfigError if a
/// document is longer than a row, unless `long` is "split".
std::unique_ptr<Dataset> OpenPack(const Value& options, StepInputs of,
                                  const DatasetContext& context);

// Steps on images and vectors (transforms.cc). Each changes the first input. Random numbers depend
// only on the seed, the epoch, the index of the sample, and the position of the step in its chain.
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
