// OpenDataset(): the table of sources and steps.
#pragma once

#include <memory>

#include "engine/data/dataset.h"

namespace strata {

/// Opens a source, or a step with all that it is of. Throws ConfigError for another kind and for
/// options that contradict each other. Throws WorldError that names a missing or broken file and
/// the expected content.
std::unique_ptr<Dataset> OpenDataset(const DataSpec& spec, const DatasetContext& context);

}  // namespace strata
