// Which layers and parameters of a job do not learn: the key `freeze`. Torch-free.
#pragma once

#include "engine/job/job.h"
#include "engine/job/job_keys.h"

namespace strata {

/// Reads `freeze` into job.freeze, and marks what it chooses: LayerSpec::frozen of whole layers,
/// LayerSpec::frozen_parameters of others, and `frozen` of those parts in which nothing learns.
///
/// Chosen are layers as by SelectLayers(), parameters by "parameters:REGEX" in the names that saves
/// have (as "3.weight"), layers by a function({index, type, name}) that returns whether, or all but
/// {except=...}. Throws ConfigError as SelectLayers() does, for an expression that no parameter's
/// name matches, and for a function that returns no boolean.
/// REQUIRES: job.layers are there.
void Freeze(const JobKeys& keys, Job& job);

}  // namespace strata
