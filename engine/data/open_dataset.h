// OpenDataset(): opens any source or step, by the table of all kinds.
#pragma once

#include <memory>

#include "engine/data/dataset.h"

namespace strata {

/// Opens a source, or a step with all sources that it is made from. Throws ConfigError for an
/// unknown kind and for options that contradict each other. Throws WorldError that names a missing
/// or broken file and the expected content.
std::unique_ptr<Dataset> OpenDataset(const DataSpec& spec, const DatasetContext& context);

}  // namespace strata
